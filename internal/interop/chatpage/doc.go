// Package chatpage tests the page of examples/chat in Chromium, with the chat as a program of its own.
package chatpage
