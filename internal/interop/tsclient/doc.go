// Package tsclient tests the TypeScript client in clients/ts: its types, its size, its package, and
// its behavior with a scripted socket and with a Penstock server.
package tsclient
