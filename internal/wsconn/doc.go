// Package wsconn is the transport under a connection: framing, the outgoing queue,
// deadlines, heartbeats, compression and the close handshake. It alone knows
// github.com/coder/websocket, which validates the opening handshake; every frame after
// it is read and written here.
//
// Goroutines. One goroutine at a time reads a connection (Read and Park). At most one
// writes it (writeLoop), and it lives only while something is queued. Frames reach the
// writer through the queue, which Conn.mu guards; nothing else writes to the socket.
// Conn.mu is the only lock of a connection, and no method of a [Handler] is called
// under it.
//
// An idle connection may be parked: then it needs no goroutine, and an event loop
// reports when there is something to read.
package wsconn
