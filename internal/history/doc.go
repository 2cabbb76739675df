// Package history keeps the publications of topics in memory, with positions. It serves a router
// without a broker and adapters/memory, and it is the model that other stores are tested against.
package history
