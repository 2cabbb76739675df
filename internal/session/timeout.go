package session

import (
	"context"
	"sync"
	"time"
)

// A timeout makes the contexts of saves. Those that begin at about the same time share a timer, because each costs
// as much as a part of the call of the store.
type timeout struct {
	mu     sync.Mutex      // no other lock is acquired under it
	shared context.Context //nolint:containedctx // of the latest saves
	until  time.Time       // for saves that begin before
}

// context returns one that ends after saveTimeout, at most an eighth later.
func (t *timeout) context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.until) {
		shared, cancel := context.WithTimeout(context.Background(), saveTimeout*9/8)
		context.AfterFunc(shared, cancel) // nothing ends it earlier
		t.shared, t.until = shared, now.Add(saveTimeout/8)
	}
	return t.shared
}
