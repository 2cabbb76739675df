// Package aichatpage tests the page of examples/aichat in Chromium, with the server as a program of
// its own.
package aichatpage
