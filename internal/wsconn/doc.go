// Package wsconn is the transport under a connection: buffers, deadlines, the
// outgoing queue, heartbeats and the end of a connection. It alone knows
// github.com/coder/websocket.
//
// The library does the handshake and reads: masking, fragments, control frames.
// Outgoing data frames are laid out here, because a server's frame is a few
// bytes before the payload, and a frame that is laid out once can be given to
// any number of connections and leave together with its neighbours in one
// system call. Compressed messages, too, are made and read here, because the
// library takes half of one for a whole one.
//
// A connection between two messages may be parked: then it takes no goroutine,
// and a Poller tells when there is something to read.
package wsconn
