// Package runs has runs as logs with an owner: package run without the types of items, and without clients. The log
// of a run is a topic with a history, its record and its lease are values of the store. docs/decisions/0082 says
// why.
//
// # Locks
//
// Runs.mu, then view.mu. Owned.mu is acquired under view.mu at most. Nothing is called under Owned.mu except
// Config.Observe. A topic's sequencer calls a view under its own lock, and is closed under Runs.mu. The store is
// read and written under no lock.
//
// # Goroutines
//
// A run has five on the node that owns it: the producer's, one that waits for it and ends the run, one that writes
// the log, one that renews the lease, and one that listens to the log for a request to stop. All end with the run,
// except a producer that does not return after it was canceled.
//
// A run that is read has one on each node that reads it without owning it, which looks at the lease while the
// owner is silent, and one while the log is read from its beginning. Readers have none.
package runs
