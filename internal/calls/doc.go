// Package calls has the calls between a server and one client, without their messages.
//
// In one direction, an [Index] holds the calls of a client that have no answer: by their IDs, so that the
// client can abort them and grant them [Credits], and by their deadlines, for which a connection has one
// entry in a queue that it shares with others. In the other direction, [Outgoing] holds the calls to a
// client whose callers wait.
//
// Types have a parameter for what they belong to: C is what the server knows of a message that it has
// received, and contains the [Call]; A is what a client answers.
//
// # Locks and goroutines
//
// Index.mu, Outgoing.mu and Credits.mu are acquired without any other lock of the package. Only the lock
// of the queue of [Deadlines] is acquired under one, Index.mu. No function of another package is called
// under them. The timer of the queue starts a goroutine for each call whose deadline has passed; it ends
// when Deadlines.Expired returns.
package calls
