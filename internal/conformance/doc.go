// Package conformance runs scenarios against clients in any language: a scripted server, which the scenarios in the directory
// scenarios tell what to do, and a driver, which operates the client. docs/writing-a-client.md describes both.
//
// A run has one goroutine that executes steps, one for each connection of the server, which reads, and one that reads what the driver
// prints. They meet in inboxes, whose locks are never held together.
package conformance
