// Package boardpage tests both pages of examples/board in Chromium, with the board as a program of
// its own.
package boardpage
