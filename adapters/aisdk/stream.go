package aisdk

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// Bounds of a request.
const (
	requestTimeout = 30 * time.Second // until it is attached to its run, or has stopped it
	maxTransient   = 64               // chunks that wait for the client
)

// A stream answers a send or a resume.
type stream struct {
	conn      *conn
	requestID string
	action    Action
	frame     *frame
	chat      string // "" if the frame has no valid one
	ingress   router.IngressContext
	after     []*stream // which must have ended before this one begins

	isAborted bool          // guarded by conn.mu
	aborted   chan struct{} // closed when it is
	finished  chan struct{} // closed when serve has returned
	transient chan Chunk
	wake      chan struct{} // a token makes watch send what is in transient

	attachedTo string // the run whose transient chunks it receives; guarded by Handler.mu
	isDetached bool   // likewise

	ctx    context.Context //nolint:containedctx // of reading the run
	cancel context.CancelCauseFunc

	topic string // written with conn.mu held, when access to it is granted
	run   string // the ID of the run

	mu       sync.Mutex // held while a frame of the stream is written
	sequence int        // of the next chunk
	order    *order
	ended    bool // nothing more may be sent
}

func (c *conn) newStream(requestID string, action Action, f *frame) *stream {
	s := &stream{
		conn: c, requestID: requestID, action: action, frame: f, order: newOrder(),
		aborted: make(chan struct{}), finished: make(chan struct{}), transient: make(chan Chunk, maxTransient),
		wake: make(chan struct{}, 1),
	}
	s.chat, _ = f.chat()
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

// serve answers the request.
func (s *stream) serve() {
	defer close(s.finished)
	defer s.conn.end(s)
	defer s.cancel(nil)
	defer s.conn.handler.detach(s)
	defer s.conn.handler.recovered("a request", func() { s.refuse(publicPart(errPanic)) })
	reader, err := s.open()
	if err != nil {
		s.refuse(err)
		return
	}
	defer reader.Close()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer s.cancel(nil)
	s.run = reader.Info().ID
	watching.Go(s.watch)
	s.follow(reader)
}

// open attaches to the run of the request. It goes on if the client disconnects, because what the
// page has sent counts.
func (s *stream) open() (*run.Reader[Chunk], error) {
	c, h := s.conn, s.conn.handler
	ctx, cancel := context.WithTimeout(c.values, requestTimeout)
	defer cancel()
	for _, other := range s.after {
		select {
		case <-other.finished:
		case <-ctx.Done():
		}
	}
	if err := h.opts.Ingress(ctx, s.ingress); err != nil {
		return nil, err
	}
	chat, err := s.frame.chat()
	if err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, h.opts.Topic(c.id, chat)); err != nil {
		return nil, err
	}
	if s.action == ActionResume {
		if err := s.frame.checkResume(); err != nil {
			return nil, err
		}
		return h.runs.Attach(ctx, s.topic, run.From{})
	}
	info, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	return h.runs.Attach(ctx, s.topic, run.From{Run: info.ID})
}

// authorize grants access to a topic. From then on, a revocation ends the stream; one before that
// makes it ask again.
func (s *stream) authorize(ctx context.Context, topic string) error {
	c := s.conn
	for {
		before := c.revocations.Load()
		if err := c.handler.opts.Authorize(ctx, s.access(s.action)); err != nil {
			return err
		}
		c.mu.Lock()
		unchanged := c.revocations.Load() == before
		if unchanged {
			s.topic = topic
		}
		c.mu.Unlock()
		if unchanged {
			return nil
		}
	}
}

func (s *stream) access(action Action) Access {
	return Access{Action: action, Chat: s.chat, Identity: s.conn.id}
}

// refuse answers a request that is not attached to a run.
func (s *stream) refuse(err error) {
	h, code := s.conn.handler, publicPart(err).Code
	if l, ok := errors.AsType[*router.LimitExceeded](err); ok {
		s.reportLimit(*l)
	} else if code == errors.Internal && !errors.Is(err, errPanic) { // which is in the log
		h.logger.Error("penstock: aisdk: a request has failed", "action", string(s.action), "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.conn.end(s)
	if s.action == ActionResume && (code == errors.NotFound || code == errors.PermissionDenied) {
		_ = s.conn.write(&response{Type: frameNoActive, RequestID: s.requestID})
		return
	}
	s.conn.writeError(s.requestID, err)
}

func (s *stream) reportLimit(l router.LimitExceeded) {
	h := s.conn.handler
	defer h.recovered("OnLimitExceeded", func() {})
	l.Type, l.Messages = string(s.action), 1
	h.opts.OnLimitExceeded(s.access(s.action), l)
}

// follow sends the chunks of a run, and how it has ended. It reads as fast as the client: what it
// has not read is merged.
func (s *stream) follow(reader *run.Reader[Chunk]) {
	h := s.conn.handler
	if s.conn.write(&response{Type: frameStart, RequestID: s.requestID}) != nil {
		return
	}
	h.attach(s.run, s)
	for part, err := range reader.Parts(s.ctx) {
		if err == nil {
			err = s.send(part.Item)
		}
		switch {
		case err == nil:
		case errors.Is(err, errDetached):
			s.finish(run.Info{State: run.Stopped})
			return
		case errors.Is(err, errRevoked):
			s.finish(run.Info{State: run.Failed, Err: errRevoked})
			return
		case s.ctx.Err() != nil || errors.Is(err, errClosed) || errors.CodeOf(err) == errors.Unavailable:
			return // the connection is closed, or will be soon
		default:
			h.logger.Error("penstock: aisdk: a run cannot be sent", "topic", s.topic, "run", s.run, "error", err)
			s.finish(run.Info{State: run.Failed, Err: errNotSent})
			return
		}
	}
	s.finish(reader.Info())
}

var (
	errDetached = errors.New("the page has aborted the request")
	errPanic    = errors.New("the application has panicked")
	errRevoked  = &errors.Error{Code: errors.PermissionDenied, Message: "the access to this chat has ended"}
	errNotSent  = &errors.Error{Code: errors.Internal, Message: "the answer cannot be sent"}
)

// send sends a chunk.
func (s *stream) send(c *Chunk) error {
	defer func() { // without the lock
		if len(s.transient) > 0 {
			put(s.wake)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errClosed
	}
	s.conn.beginWriting()
	defer s.conn.endWriting()
	if s.isRevoked() { // after the wait for what other streams write
		return errRevoked
	}
	if err := s.flushLocked(); err != nil {
		return err
	}
	if err := s.order.add(c); err != nil {
		return err
	}
	return s.sendLocked(c)
}

// isRevoked reports whether the access to the topic has ended.
func (s *stream) isRevoked() bool { return context.Cause(s.ctx) == errRevoked } //nolint:errorlint // one value

// flush sends the transient chunks that wait, unless another goroutine sends: that wakes watch
// again.
func (s *stream) flush() {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		s.conn.beginWriting()
		defer s.conn.endWriting()
		_ = s.flushLocked() // the connection ends after an error
	}
}

// flushLocked sends the transient chunks that wait, between the start of the answer and its end. It is called between
// beginWriting and endWriting.
func (s *stream) flushLocked() error {
	for s.order.started && !s.order.finished && !s.ended && s.ctx.Err() == nil {
		select {
		case c := <-s.transient:
			if err := s.sendLocked(&c); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (s *stream) sendLocked(c *Chunk) error {
	sequence := s.sequence
	s.sequence++
	return s.conn.writeLocked(&response{Type: frameChunk, RequestID: s.requestID, Sequence: &sequence, Chunk: c})
}

// finish closes what is open, and says how the run has ended.
func (s *stream) finish(info run.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.beginWriting()
	defer s.conn.endWriting()
	if s.isRevoked() {
		info = run.Info{State: run.Failed, Err: errRevoked}
	}
	text := errorText(info.Err)
	if s.flushLocked() != nil {
		return
	}
	s.ended = true
	closing := s.order.closing(text)
	if !s.order.finished {
		switch info.State {
		case run.Completed:
			closing = append(closing, Finish(FinishStop))
		case run.Stopped:
			closing = append(closing, Chunk{Type: "abort", Reason: "stopped"})
		}
	}
	for i := range closing {
		if s.sendLocked(&closing[i]) != nil {
			return
		}
	}
	s.conn.end(s)
	if info.State == run.Completed || info.State == run.Stopped {
		_ = s.conn.writeLocked(&response{Type: frameEnd, RequestID: s.requestID})
		return
	}
	_ = s.conn.writeLocked(&response{Type: frameError, RequestID: s.requestID, ErrorText: text})
}

// watch does what an abort asks for, and sends transient chunks, until the stream ends.
func (s *stream) watch() {
	for {
		select {
		case <-s.wake:
			s.flush()
			continue
		case <-s.aborted:
		case <-s.ctx.Done():
			if s.conn.ctx.Err() != nil {
				<-s.conn.unread // an abort may have arrived before the connection was closed
			}
		}
		select {
		case <-s.aborted:
			s.abort()
		default:
		}
		return
	}
}

// abort stops the run, or only detaches from it.
func (s *stream) abort() {
	stopped := false
	defer func() {
		if !stopped {
			s.cancel(errDetached)
		}
	}()
	c, h := s.conn, s.conn.handler
	defer h.recovered("Authorize", func() {})
	if h.opts.AbortDetaches {
		return
	}
	ctx, cancel := context.WithTimeout(c.values, requestTimeout)
	defer cancel()
	if err := h.opts.Authorize(ctx, s.access(ActionAbort)); err != nil {
		return
	}
	_, err := h.runs.Stop(ctx, s.topic, s.run, c.id.UserID)
	if stopped = err == nil; !stopped {
		h.logger.Warn("penstock: aisdk: an abort has not stopped the run", "topic", s.topic, "run", s.run, "error", err)
	}
}
