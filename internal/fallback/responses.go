package fallback

import (
	"context"
	"sync"
)

// responses are those that this node sends, for connections of its own and of other nodes. However many a
// client asks for, only one has events in memory.
type responses struct {
	mu      sync.Mutex
	senders map[digest]*sender // by secret
}

// A sender is what the responses of one connection share.
type sender struct {
	turn chan struct{} // of capacity 1, is held by a response from its beginning to its end

	cancel context.CancelFunc // ends the newest response; guarded by responses.mu
	users  int                // responses that hold turn or wait for it; guarded by responses.mu
}

// begin ends the response before of the connection with a secret, and waits until it has ended. It returns
// nil if ctx is done or yet another one begins meanwhile. Otherwise, the context that it returns is done when
// another one begins, and end must be called.
func (r *responses) begin(ctx context.Context, secret secret) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	key := secret.digest()
	s, before := r.join(key, cancel)
	before()
	leave := func() {
		cancel()
		r.leave(key, s)
	}
	select {
	case s.turn <- struct{}{}:
		return ctx, func() {
			<-s.turn
			leave()
		}
	case <-ctx.Done():
		leave()
		return nil, nil
	}
}

// join adds the newest response, and returns the function that ends the one before.
func (r *responses) join(key digest, cancel context.CancelFunc) (s *sender, before context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.senders[key]
	if s == nil {
		s = &sender{turn: make(chan struct{}, 1), cancel: func() {}}
		r.senders[key] = s
	}
	before, s.cancel = s.cancel, cancel
	s.users++
	return s, before
}

func (r *responses) leave(key digest, s *sender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(r.senders, key)
	}
}

// end ends the response of a connection, because one begins on another node.
func (r *responses) end(secret secret) {
	r.mu.Lock()
	s := r.senders[secret.digest()]
	cancel := func() {}
	if s != nil {
		cancel = s.cancel
	}
	r.mu.Unlock()
	cancel()
}
