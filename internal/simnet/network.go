package simnet

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// A Network connects hosts, which exist from their first use on. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	links     Links
	hosts     map[string]*host
	listeners map[string]*Listener // by the name of the host
	conns     map[*link]struct{}   // that are open at one end at least
}

// Links say how connections behave without a fault.
type Links struct {
	// MaxDelay bounds the time that bytes are on their way, which is random for each write. The order of
	// the bytes of a connection stays.
	MaxDelay time.Duration

	// Window is how many bytes of a direction may be written and not read, as the buffers of two kernels
	// hold them.
	Window int
}

type host struct {
	name    string
	address netip.Addr
	ports   uint16    // given to outgoing connections
	down    bool      // refuses connections
	stalled time.Time // nothing arrives at this host, or leaves it, before
}

// New returns a network without hosts.
func New(seed uint64, links Links) *Network {
	return &Network{
		rng: rand.New(rand.NewPCG(seed, 0)), links: links, //nolint:gosec // not secret
		hosts: map[string]*host{}, listeners: map[string]*Listener{}, conns: map[*link]struct{}{},
	}
}

// hostLocked returns a host, and adds it if there is none of this name. The network's lock must be held.
func (n *Network) hostLocked(name string) *host {
	h, ok := n.hosts[name]
	if !ok {
		i := len(n.hosts) + 1
		h = &host{name: name, address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
		n.hosts[name] = h
	}
	return h
}

// delayLocked returns how long the next write is on its way. The network's lock must be held.
func (n *Network) delayLocked() time.Duration {
	if n.links.MaxDelay <= 0 {
		return 0
	}
	return time.Duration(n.rng.Int64N(int64(n.links.MaxDelay)))
}

func (n *Network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delayLocked()
}

// Listen makes a host accept connections. It replaces a closed listener of the host.
func (n *Network) Listen(hostName string) *Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hostLocked(hostName)
	l := &Listener{network: n, host: h, accepted: make(chan *Conn), closed: make(chan struct{})}
	n.listeners[hostName] = l
	return l
}

// Dial connects two hosts. It takes a round trip, and as long as one of the hosts is stalled. The error of a
// host that does not listen or is down is ECONNREFUSED.
func (n *Network) Dial(ctx context.Context, from, to string) (net.Conn, error) {
	for {
		n.mu.Lock()
		wait := max(time.Until(n.hostLocked(from).stalled), time.Until(n.hostLocked(to).stalled))
		if wait <= 0 {
			wait = n.delayLocked()
			n.mu.Unlock()
			if err := sleep(ctx, wait); err != nil {
				return nil, opError("dial", err)
			}
			break
		}
		n.mu.Unlock()
		if err := sleep(ctx, wait); err != nil {
			return nil, opError("dial", err)
		}
	}
	client, server, l, err := n.connect(from, to)
	if err != nil {
		return nil, opError("dial", err)
	}
	select {
	case l.accepted <- server:
		return client, nil
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = client.Close()
	_ = server.Close()
	return nil, opError("dial", err)
}

func (n *Network) connect(from, to string) (client, server *Conn, l *Listener, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l = n.listeners[to]
	source, target := n.hostLocked(from), n.hostLocked(to)
	if l == nil || target.down {
		return nil, nil, nil, syscall.ECONNREFUSED
	}
	source.ports++
	k := newLink(n, source, target, source.ports)
	n.conns[k] = struct{}{}
	return k.ends[0], k.ends[1], l, nil
}

// Cut resets all connections of a host: of what is on its way in a direction, a random part still arrives.
func (n *Network) Cut(hostName string) { n.each(hostName, (*link).cut) }

// Abandon breaks all connections of a host without a notice to either end: nothing arrives any more.
// New connections work.
func (n *Network) Abandon(hostName string) { n.each(hostName, (*link).abandon) }

// Stall holds back everything that is on its way to and from a host, and connections that are opened, for d.
func (n *Network) Stall(hostName string, d time.Duration) {
	n.mu.Lock()
	n.hostLocked(hostName).stalled = time.Now().Add(d)
	n.mu.Unlock()
	n.each(hostName, func(k *link) { k.stall(time.Now().Add(d)) })
}

// SetDown makes a host refuse connections, as one without a process does. Open connections stay.
func (n *Network) SetDown(hostName string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hostLocked(hostName).down = down
}

// Conns returns the number of connections of a host that are open at one end at least; "" is all hosts.
func (n *Network) Conns(hostName string) int {
	return len(n.linksOf(hostName))
}

func (n *Network) each(hostName string, do func(*link)) {
	for _, k := range n.linksOf(hostName) {
		do(k)
	}
}

// linksOf returns the connections of a host in the order in which they were opened.
func (n *Network) linksOf(hostName string) []*link {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*link
	for k := range n.conns {
		if hostName == "" || k.ends[0].host.name == hostName || k.ends[1].host.name == hostName {
			found = append(found, k)
		}
	}
	sortLinks(found)
	return found
}

func (n *Network) remove(k *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, k)
}

// A Listener accepts the connections of a host. It implements [net.Listener].
type Listener struct {
	network  *Network
	host     *host
	accepted chan *Conn
	closed   chan struct{}
	once     sync.Once
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, opError("accept", net.ErrClosed)
	}
}

// Close refuses further connections.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.host.name] == l {
		delete(l.network.listeners, l.host.name)
	}
	return nil
}

// Addr returns the address of the host.
func (l *Listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.host.address, listenPort))
}

const listenPort = 80

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// opError returns an error as those of package net are: Timeout reports that of its cause.
func opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: hostAddr("simulated network"), Err: err}
}

// hostAddr is the text of an address.
type hostAddr string

func (hostAddr) Network() string  { return "tcp" }
func (a hostAddr) String() string { return string(a) }
