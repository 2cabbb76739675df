// Package fallback carries a WebSocket connection over plain HTTP requests, for clients whose network blocks
// WebSocket: messages for the client as Server-Sent Events, its own as POST requests. It knows no router. The
// router receives one end of an in-memory pipe as a hijacked connection, and speaks WebSocket over it; this
// package has the other end. docs/protocol.md, section 15, defines the requests.
//
// # Goroutines
//
// Per connection: read (conn.go), which reads frames from the pipe until it is closed. All else runs on
// the goroutines of HTTP requests and of timers, and Answer on that of its caller. The one that handles an up with
// messages holds conn.turn and writes to the pipe, and waits there until the router reads.
//
// # Locks
//
// Server.mu, responses.mu, conn.mu, permits.mu and bodies.mu are never held together, and nothing is called, written or
// waited for under them. sender.turn and conn.turn are acquired before them.
package fallback
