// Package failure splits errors and panics of the application into what a client may see and what
// stays on the server. Methods of errors may panic, too, or form trees without an end: [Inspector.Guard]
// recovers panics, and the functions bound the trees. The package has no locks and no goroutines.
package failure
