package load

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
)

// maxReadBytes bounds a message from the server.
const maxReadBytes = 16 << 20

// open opens the connections at the rate of the ramp.
func (r *run) open(ctx context.Context) ([]*conn, error) {
	var all []*conn
	var first error
	var opening sync.WaitGroup
	progressing, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { r.reportOpening(progressing) })
	start := time.Now()
	for n := range r.Connections {
		if !sleepUntil(ctx, start.Add(time.Duration(float64(n)/r.Ramp*float64(time.Second)))) {
			break
		}
		opening.Go(func() {
			c, err := r.openOne(ctx, &slot{number: n})
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				all = append(all, c)
				return
			}
			r.report.Refused[refusal(err)]++
			if first == nil {
				first = err
			}
		})
	}
	opening.Wait()
	stop()
	reporting.Wait()
	switch {
	case len(all) > 0:
		return all, nil
	case first == nil:
		return nil, errors.New("interrupted before a connection was open")
	default:
		return nil, fmt.Errorf("no connection could be opened: %w", first)
	}
}

// A statusError is a handshake that the server has refused.
type statusError struct {
	code int
	error
}

// Unwrap returns the error of the handshake.
func (e statusError) Unwrap() error { return e.error }

// A rejectedError is a call of the setup, or a subscription, that the server has rejected.
type rejectedError struct{ call, code, message string }

func (e rejectedError) Error() string { return e.call + ": " + e.code + ": " + e.message }

// errNoPositions means that reach cannot be counted.
var errNoPositions = errors.New("the topic has no history, so its publications have no positions by which to count those that are received; " +
	"put {{mark}} into the payload, in a field that the server copies into the publication")

// openOne opens a connection, makes the calls of its setup, and subscribes it.
func (r *run) openOne(ctx context.Context, s *slot) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.dial(ctx, s)
	if err != nil {
		return nil, err
	}
	go c.read()
	if err = r.setUp(ctx, c); err == nil {
		err = c.markOpen()
	}
	if err != nil {
		_ = c.ws.CloseNow()
		<-c.closed
		return nil, err
	}
	return c, nil
}

func (r *run) dial(ctx context.Context, s *slot) (*conn, error) {
	opts := &websocket.DialOptions{}
	if r.Header != nil {
		opts.HTTPHeader = r.Header(s.number)
	}
	ws, resp, err := websocket.Dial(ctx, r.URL, opts) //nolint:bodyclose // websocket.Dial says that the body need not be closed
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, statusError{resp.StatusCode, err}
		}
		return nil, err
	}
	ws.SetReadLimit(maxReadBytes)
	return newConn(r, ws, s), nil
}

// setUp greets, as clients do. A connection that the server has refused after the upgrade ends before
// the answer. A rejection is an answer, too.
func (r *run) setUp(ctx context.Context, c *conn) error {
	_, err := c.ask(ctx, "$ws:hello", "{}")
	if _, rejected := errors.AsType[rejectedError](err); err != nil && !rejected {
		return err
	}
	for _, m := range r.Setup {
		if _, err := c.ask(ctx, m.Type, parse(m.Payload).fill(0, c.number, "")); err != nil {
			return err
		}
	}
	if r.Topic == "" {
		return nil
	}
	p, err := c.subscribe(ctx, r.Topic)
	if err == nil && r.needsPositions() {
		if p.Epoch == "" {
			return errNoPositions
		}
		c.receiving.Lock()
		c.offsets.last = max(c.offsets.last, p.Offset)
		c.receiving.Unlock()
	}
	return err
}

// refusal returns the status of a failed handshake, or the kind of its error.
func refusal(err error) string {
	if status, ok := errors.AsType[statusError](err); ok {
		return "status " + strconv.Itoa(status.code)
	}
	if rejected, ok := errors.AsType[rejectedError](err); ok {
		return rejected.call + ": " + rejected.code
	}
	if closed, ok := errors.AsType[closedError](err); ok {
		return "close code " + strconv.Itoa(closed.code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, errNoPositions) {
		return "the topic has no history"
	}
	return "no connection"
}
