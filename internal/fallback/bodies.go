package fallback

import (
	"io"
	"net/netip"
	"sync"

	"github.com/penstock-go/penstock/errors"
)

// bodies bound the bytes of bodies in memory: of all clients, of one client, which may have half of them, and of one
// connection, which may have one body and another one behind it. Bytes count when they have arrived, so that a client
// that announces many and sends none takes nothing from others.
type bodies struct {
	max     int64
	perConn func() int64

	mu      sync.Mutex
	bytes   int64
	clients map[netip.Prefix]int64 // by address of the client
	conns   map[digest]int64       // by secret
}

func (b *bodies) init(maxBytes int64, perConn func() int64) {
	b.max, b.perConn = maxBytes, perConn
	b.clients, b.conns = map[netip.Prefix]int64{}, map[digest]int64{}
}

// A received is what has arrived of one body. It is not safe for concurrent use.
type received struct {
	bodies *bodies
	client netip.Prefix // invalid if it is unknown, and then not bounded
	conn   digest
	bytes  int64
}

// begin returns a body of which nothing has arrived. Its end must be called.
func (b *bodies) begin(client netip.Prefix, conn digest) *received {
	return &received{bodies: b, client: client, conn: conn}
}

// errTooManyBytes refuses the rest of a body, which the client may send again.
var errTooManyBytes = errors.New("too many bytes of bodies")

// add counts bytes, unless other bodies have reached a bound: one that is larger is admitted if it is alone. A body without
// messages, such as an acknowledgment, is never refused.
func (r *received) add(n int) error {
	if n == 0 {
		return nil
	}
	b := r.bodies
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes-r.bytes >= b.max || b.conns[r.conn]-r.bytes >= b.perConn() || r.client.IsValid() && b.clients[r.client]-r.bytes >= (b.max+1)/2 {
		return errTooManyBytes
	}
	r.countLocked(int64(n))
	return nil
}

// end forgets the body.
func (r *received) end() {
	r.bodies.mu.Lock()
	defer r.bodies.mu.Unlock()
	r.countLocked(-r.bytes)
	r.bytes = 0
}

func (r *received) countLocked(n int64) {
	b := r.bodies
	r.bytes += n
	b.bytes += n
	if b.clients[r.client] += n; b.clients[r.client] == 0 {
		delete(b.clients, r.client)
	}
	if b.conns[r.conn] += n; b.conns[r.conn] == 0 {
		delete(b.conns, r.conn)
	}
}

// A countingReader counts what it reads.
type countingReader struct {
	io.Reader

	received *received
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if refusal := r.received.add(n); refusal != nil {
		return 0, refusal
	}
	return n, err
}
