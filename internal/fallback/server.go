package fallback

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Times of the protocol.
const (
	// lostAfter is how long a connection waits for its client: without a response, for an
	// acknowledgment while its window is full, and for a request after a ping. As long, it is known after
	// its end.
	lostAfter = 10 * time.Second

	maxPollWait     = 25 * time.Second // of a poll without events
	commentInterval = 15 * time.Second // of a response without events
	bodyTimeout     = 10 * time.Second // from the header of a request to the end of its body
	turnWait        = 5 * time.Second  // of an up for the one before
)

// A Config is what a Server needs. All functions are required, and called concurrently.
type Config struct {
	MaxConns        int           // connections of this node, with those that have ended less than lostAfter ago
	MaxPerClient    int           // of them, those of one client, at most half; 0 is half
	MaxMessageBytes func() int64  // of a client; at most maxMessageBytes are permitted
	MaxBodyBytes    int64         // that have arrived of the bodies of all clients, until the router has them; perhaps one body more
	WriteTimeout    time.Duration // of one write to a response
	MeasureOnly     bool          // no connection is opened

	// Serve handles the handshake of a connection. w implements http.Hijacker, and has a method
	// Refuse(code int, reason string) that refuses the handshake with the code and the reason of a close frame.
	Serve func(w http.ResponseWriter, req *http.Request, mode Mode)

	// Refuses reports whether a handshake would be refused now because of what the node does, with any credentials.
	Refuses func(*http.Request) bool
	Full    func(*http.Request) // reports a handshake that MaxConns or MaxPerClient refuses

	// Allow reports whether the page that has sent a request may connect.
	Allow func(*http.Request) bool

	// Client returns the network of a client, for bounds of what one client may cause.
	Client func(*http.Request) netip.Prefix

	// Unflushable is called if a stream is refused because the ResponseWriter cannot flush.
	Unflushable func(*http.Request, http.ResponseWriter)

	Peers Peers
}

// A Server serves the connections of a node. Create one with New.
type Server struct {
	config  Config
	node    nodeHash
	asking  permits // of requests of which other nodes are asked
	probing permits // of probes
	slots   permits // of connections in conns, and of those that are being opened
	bodies  bodies

	responses responses

	// ctx is done when the node shuts down. Connections of this node are served until they are closed.
	ctx  context.Context //nolint:containedctx // of the node, and not of a call
	stop context.CancelFunc

	mu    sync.Mutex
	conns map[digest]*conn

	changed chan struct{} // of capacity 1: the end of a connection was sent, or it is forgotten
}

// New returns a server.
func New(config Config) *Server {
	s := &Server{config: config, node: hashNode(config.Peers.Name), conns: map[digest]*conn{}, changed: make(chan struct{}, 1)}
	s.asking.init(2 * config.MaxConns)
	s.probing.init(maxProbes)
	s.slots.init(config.MaxConns)
	if config.MaxPerClient > 0 {
		s.slots.perClient = min(s.slots.perClient, config.MaxPerClient)
	}
	s.responses.senders = map[digest]*sender{}
	s.bodies.init(config.MaxBodyBytes, s.maxUpBytes)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Shutdown ends the responses for connections of other nodes.
func (s *Server) Shutdown() { s.stop() }

// drainWait bounds how long Drain waits for clients that do not ask for events.
const drainWait = 3 * time.Second

// Drain waits until the clients of this node have been sent the end of their connections, with what precedes it: the answers
// to their calls. It must follow the end of these connections, and returns when ctx is done, or after drainWait.
func (s *Server) Drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	for s.owesEnds() && ctx.Err() == nil {
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
}

func (s *Server) owesEnds() bool {
	s.mu.Lock()
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	return slices.ContainsFunc(conns, (*conn).owesEnd)
}

// ServeHTTP handles a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("Penstock-Fallback", "1")
	if s.config.MeasureOnly {
		h.Set("Penstock-Fallback", "0")
	}
	h.Add("Vary", "Origin")
	allowed := s.config.Allow(req)
	if origin := req.Header.Get("Origin"); allowed && origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", "Penstock-Fallback, Retry-After")
		h.Set("Timing-Allow-Origin", origin) // so that a page sees whether it uses HTTP/2
	}
	if s.ctx.Err() != nil {
		h.Set("Connection", "close") // the next request should reach another node
	}
	operation := req.URL.Query()
	switch {
	case req.Method == http.MethodGet && req.Header.Get("Upgrade") != "":
		s.probe(w, req, allowed)
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		s.check(w, req)
	case req.Method != http.MethodPost:
		h.Set("Allow", "GET, HEAD, POST")
		answer(w, http.StatusMethodNotAllowed)
	case s.config.MeasureOnly:
		answer(w, http.StatusForbidden)
	case operation.Has("open"): // the handshake refuses other origins
		s.open(w, req)
	case !allowed:
		answer(w, http.StatusForbidden)
	case operation.Has("down"):
		s.down(w, req)
	case operation.Has("up"):
		s.up(w, req)
	default:
		answer(w, http.StatusBadRequest)
	}
}

// check answers a client that finds out whether HTTP works where WebSocket does not. If the node refuses both now,
// nothing is blocked.
func (s *Server) check(w http.ResponseWriter, req *http.Request) {
	if s.ctx.Err() != nil || s.config.Refuses(req) {
		answer(w, http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answer writes a status.
func answer(w http.ResponseWriter, status int) {
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
}

// add makes a connection known, which has a slot.
func (s *Server) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c.secret.digest()] = c
}

// remove forgets a connection and releases its slot. It may be called again.
func (s *Server) remove(c *conn) {
	if s.delete(c) {
		s.slots.release(c.client, http.StatusOK)
		signal(s.changed)
	}
}

// delete reports whether the connection was known.
func (s *Server) delete(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := c.secret.digest()
	known := s.conns[key] == c
	if known {
		delete(s.conns, key)
	}
	return known
}

// find returns the connection with a secret, or nil.
func (s *Server) find(secret secret) *conn {
	key := secret.digest() // comparing digests says nothing about secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[key]
}
