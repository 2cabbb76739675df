//go:build unix

package run_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/runmessages"
)

// stay is how long a reader stays on a node at most.
func stay() time.Duration { return size(time.Second, 3*time.Second) }

// A loadRun is a run, and what its readers have received.
type loadRun struct {
	topic, id string
	owner     int // a node
	items     int // that its producer emits

	mu       sync.Mutex
	ends     []runmessages.Ended
	received []uint64
	wrong    int           // items that are repeated, reordered or wrong
	latest   time.Time     // when a reader has seen the end
	pause    time.Duration // the longest one between two items of a reader
}

// read reads a run to its end, while it moves between the nodes.
func (c *cluster) read(r *loadRun) {
	next, last := uint64(0), time.Now()
	pause := time.Duration(0)
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		urls := c.alive()
		end, wrong := r.readOn(urls[rand.IntN(len(urls))], &next, func() {
			pause = max(pause, time.Since(last))
			last = time.Now()
		})
		r.mu.Lock()
		r.wrong += wrong
		if end.Run != "" {
			r.ends, r.received, r.latest = append(r.ends, end), append(r.received, next), time.Now()
			r.pause = max(r.pause, pause)
		}
		r.mu.Unlock()
		if end.Run != "" {
			return
		}
	}
	c.t.Errorf("a reader of %s has seen no end", r.topic)
}

// readOn reads from one node for a while. It returns the end if it is reached. A run that is unknown after a
// failover is one that its owner stores again.
func (r *loadRun) readOn(address string, next *uint64, received func()) (end runmessages.Ended, wrong int) {
	ctx, cancel := context.WithTimeout(context.Background(), stay()/5+rand.N(stay()*4/5))
	defer cancel()
	cl := client.New("ws"+strings.TrimPrefix(address, "http")+"/ws", &client.Options{Logger: slog.New(slog.DiscardHandler)})
	defer func() { _ = cl.Close(ctx) }()
	attach := runmessages.Attach[numbered]{Topic: r.topic, Run: r.id, From: *next}
	for part, err := range client.StreamReply[runmessages.Part[numbered]](ctx, cl, attach, &end) {
		switch {
		case err != nil:
			return runmessages.Ended{}, wrong
		case part.Item == nil:
			continue
		case part.Number != *next || part.Item.N != int(*next):
			wrong++
		}
		received()
		*next = part.Next()
	}
	return end, wrong
}
