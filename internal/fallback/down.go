package fallback

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
)

// chunkBytes are written to a response at once, each within Config.WriteTimeout.
const chunkBytes = 16 << 10

// A source waits for the events of a connection behind an ID. It returns false when the response must end without
// more of them.
type source func(ctx context.Context, after uint64, wait time.Duration) (batch, bool)

// down answers a client that waits for events.
func (s *Server) down(w http.ResponseWriter, req *http.Request) {
	text, status := readBody(w, req, maxLineBytes)
	if status != 0 {
		answer(w, status)
		return
	}
	down, err := parseDown(text)
	if err != nil {
		answer(w, http.StatusBadRequest)
		return
	}
	if down.secret.node() != s.node {
		s.forwardDown(w, req, down)
		return
	}
	c := s.find(down.secret)
	if c == nil || !c.acknowledge(down.Ack, true) {
		answer(w, http.StatusConflict)
		return
	}
	c.heard()
	ctx, end := s.responses.begin(req.Context(), down.secret)
	if end == nil {
		answer(w, http.StatusServiceUnavailable)
		return
	}
	defer end()
	out, err := s.newOutput(w, req.WithContext(ctx), down.Mode, down.wait())
	if err != nil {
		return
	}
	r := c.attach(random.Uint64(), true)
	defer c.detach(r)
	if out.begin(ctx) == nil {
		c.respond(ctx, out, r, down.Ack)
	}
}

// respond sends the events of a connection, until the response ends.
func (c *conn) respond(ctx context.Context, out *output, r *response, after uint64) {
	out.progress, out.ended = func() { signal(c.room) }, c.sentEnd
	out.send(ctx, after, func(ctx context.Context, after uint64, wait time.Duration) (batch, bool) {
		return c.next(ctx, r, after, wait)
	})
}

// An output is a response with events.
type output struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	mode     Mode
	wait     time.Duration // of a poll without events
	timeout  time.Duration // of a write
	progress func()        // called after each write of events
	ended    func()        // called when the last event was written
}

// newOutput begins a response. If that is not possible, it has answered the request, and returns an error.
func (s *Server) newOutput(w http.ResponseWriter, req *http.Request, mode Mode, wait time.Duration) (*output, error) {
	out := &output{w, http.NewResponseController(w), mode, wait, s.config.WriteTimeout, func() {}, func() {}}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx passes events on at once
	if mode == Poll {
		return out, nil
	}
	err := out.timed(req.Context(), out.control.Flush)
	if errors.Is(err, http.ErrNotSupported) { // nothing has been written
		h.Del("Content-Type")
		answer(w, http.StatusNotImplemented)
		s.config.Unflushable(req, w)
	}
	return out, err
}

// begin shows the client of a stream that it passes proxies without delay, even if there are no events.
func (out *output) begin(ctx context.Context) error {
	if out.mode == Poll {
		return nil
	}
	return out.write(ctx, comment)
}

// send sends events until a source has no more, the mode or ctx ends the response, or the client does not read.
func (out *output) send(ctx context.Context, after uint64, next source) {
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }() // the HTTP connection may serve other requests
	started := time.Now()
	idle := started
	for {
		now := time.Now()
		wait := commentInterval - now.Sub(idle)
		if out.mode == Poll {
			wait = min(wait, out.wait-now.Sub(started))
		}
		b, ok := next(ctx, after, max(0, wait))
		switch now = time.Now(); {
		case !ok:
			return
		case len(b.text) > 0:
			if out.write(ctx, b.text) != nil {
				return
			}
			if b.end {
				out.ended()
			}
			if b.end || out.mode == Poll {
				return
			}
			after, idle = b.last, now
		case b.end, out.mode == Poll && now.Sub(started) >= out.wait:
			return
		case now.Sub(idle) >= commentInterval:
			if out.write(ctx, comment) != nil {
				return
			}
			idle = now
		}
	}
}

// write writes text and flushes it. A poll is also flushed by its end, so it does not need a writer that can flush.
func (out *output) write(ctx context.Context, text []byte) error {
	for len(text) > 0 {
		n := min(len(text), chunkBytes)
		err := out.timed(ctx, func() error {
			if _, err := out.w.Write(text[:n]); err != nil {
				return err
			}
			if err := out.control.Flush(); !errors.Is(err, http.ErrNotSupported) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if text = text[n:]; n > len(comment) {
			out.progress()
		}
	}
	return nil
}

// timed calls a function that writes. It fails after the timeout of a write, or when ctx is done, unless the
// ResponseWriter has no deadlines.
func (out *output) timed(ctx context.Context, write func() error) error {
	_ = out.control.SetWriteDeadline(time.Now().Add(out.timeout)) // if it cannot be set, that of the server applies
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = out.control.SetWriteDeadline(time.Unix(1, 0))
	})
	err := write()
	if !stop() {
		<-interrupted // before the handler returns: net/http then panics if a deadline is set
		return ctx.Err()
	}
	return err
}
