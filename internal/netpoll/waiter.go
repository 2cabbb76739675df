package netpoll

// A Waiter waits for a socket to become readable.
type Waiter interface {
	// Readable reports that the socket may have something to read. special means that
	// the kernel reported a hangup, an error or urgent data, of which it reports each
	// only once: from then on, a short read does not prove that the socket is empty.
	// Readable must not block.
	Readable(special bool)
}
