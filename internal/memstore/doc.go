// Package memstore keeps the histories of topics, their states and values in the memory of this
// process. It serves a router without a broker and adapters/memory, and it is the model that other
// stores are tested against.
//
// A [Store] answers calls and has no goroutine: every call also removes a little of what has
// expired. A [Hub] passes what is stored on to the nodes of the process. Each [Node] has a queue,
// whose goroutine exists only while calls of the handler wait.
//
// Locks, in this order: that of Node.use, those of the Store, Hub.mu, that of a Node's queue. That
// of Node.handling is held while the handler runs, and acquired without the others; the handler may
// call its Node.
package memstore
