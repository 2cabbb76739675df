// Package rawclient is a client for tests that is written from docs/protocol.md alone, and shares no code
// with the clients or the router. It reports everything that the page does not permit a server to send,
// and records what it has received, so that a model can compare it with what was sent.
//
// A client connects, reconnects with backoff, resumes its session and moves after $ws:goaway without being
// asked, in the time of its bubble (testing/synctest). It speaks JSON.
//
// Each connection has one goroutine that reads and one that writes; the one that reads opens the next
// connection. Client.mu is the only lock. Client.Close waits for all goroutines.
package rawclient
