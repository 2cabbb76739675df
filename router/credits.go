package router

import (
	"math"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// credits counts the items that a client still permits a stream to send.
type credits struct {
	mu      sync.Mutex
	left    int64
	granted chan struct{} // closed by the next grant; nil unless a producer waits
}

// errNoCredit rejects a message that grants credits without a number.
var errNoCredit = errors.InvalidField("meta.credit", "is missing")

// errCreditWithoutID rejects a stream that could never be granted more items.
var errCreditWithoutID = &errors.Error{Code: errors.InvalidArgument, Message: "meta.credit requires meta.correlationId"}

// readCredit stores the credits with which a stream starts.
func (in *incoming) readCredit() *failure.Failure {
	switch {
	case !in.head.HasCredit:
		return nil
	case len(in.head.CorrelationID) == 0:
		return failure.Of(errCreditWithoutID).At("parse")
	}
	in.call.call.credits = &credits{left: in.head.Credit}
	return nil
}

// grantCredit handles the client's permission for n more items. The stream may have ended
// meanwhile, so an unknown ID is ignored; so are calls, and streams that started without credits.
func (c *Conn) grantCredit(id string, n int64) {
	if ctx := c.calls.find(id); ctx != nil && ctx.call.credits != nil {
		ctx.call.credits.grant(n)
	}
}

// grant adds n credits, at most as many as fit.
func (k *credits) grant(n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left += n; k.left < 0 {
		k.left = math.MaxInt64
	}
	if k.granted != nil && k.left > 0 {
		close(k.granted)
		k.granted = nil
	}
}

// take uses a credit and returns nil, or returns a channel that is closed when there may be one.
func (k *credits) take() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left > 0 {
		k.left--
		return nil
	}
	if k.granted == nil {
		k.granted = make(chan struct{})
	}
	return k.granted
}

// errUngranted ends a stream whose client grants no credit in Timeouts.Send.
var errUngranted = &errors.Error{Code: errors.DeadlineExceeded, Message: "client grants no credit"}

// awaitCredit uses one of the client's credits, at once if the client gives none. It returns an error
// if the context is done first, or if it takes too long: a client could otherwise keep its handlers
// for ever.
func (c *Context) awaitCredit() error {
	k := c.call.credits
	if k == nil {
		return nil
	}
	granted := k.take()
	if granted == nil {
		return nil
	}
	timer := time.NewTimer(c.conn.router.opts.Timeouts.Send)
	defer timer.Stop()
	for ; granted != nil; granted = k.take() {
		select {
		case <-granted:
		case <-c.Done():
			return c.endCause()
		case <-timer.C:
			return errUngranted
		}
	}
	return nil
}
