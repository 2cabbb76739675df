// Package abuse measures what each message of the protocol, and the handshake, costs the server for
// every byte that a client sends: the memory that it keeps, the bytes that it sends, its CPU time, and what it
// makes Redis do. The test fails if one exceeds its ceiling, and writes the table in SECURITY.md:
//
//	go test ./internal/abuse -abuse.update ../../SECURITY.md
//
// Everything runs with the default limits of package router.
package abuse
