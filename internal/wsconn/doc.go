// Package wsconn is the transport under a connection: framing, the outgoing queue,
// deadlines, heartbeats, compression and the close handshake. It alone knows
// github.com/coder/websocket, which validates the opening handshake; every frame after
// it is read and written here.
//
// Goroutines. One goroutine at a time has the right to read a connection (read_right.go). At most one
// writes it (writeLoop), and only while something is queued: the event loop that has served the
// connection, the flusher of the loop (engine.go), or a goroutine that waits for a client that reads
// slowly. Frames reach the writer through the queue, which Conn.mu guards; nothing else writes frames.
// The timer of the [Engine] runs heartbeats (heartbeat.go). Conn.mu is the only lock of a connection,
// except that of tlsConn; the locks of the [Engine] come after it, and no method of a [Handler] is
// called under it.
//
// An idle connection is parked: it holds no goroutine, no buffer and no timer of its own, and an
// event loop of internal/netpoll calls Handler.Serve when there is something to read. Where there are
// no event loops, and for connections that are neither TCP, Unix nor TLS over TCP, a goroutine waits in
// Read. While a goroutine with the right to read does not read, data waits in the kernel or in
// crypto/tls. Buffer.At of internal/netpoll is when data was read from there, not when it arrived.
package wsconn
