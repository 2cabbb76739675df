// Package wsframe reads and writes WebSocket messages (RFC 6455) on a byte stream inside one
// process. Behind the stream, such as one end of a net.Pipe, is a WebSocket implementation that is
// trusted to mean well: the router's own, or that of the Go client. For sockets of the network
// there is package wsconn.
//
// The package negotiates no extension, starts no goroutine, and does not check that text is UTF-8.
package wsframe
