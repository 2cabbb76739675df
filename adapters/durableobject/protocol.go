package durableobject

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
)

// protocolVersion is the version of the requests and replies in this file. The Worker's side is in
// worker/src/request.ts and part.ts.
const protocolVersion = 2

// maxNumber is the largest number that the Worker takes.
const maxNumber = 1<<53 - 1

// errNotDecided is the error of a call whose Durable Object has failed, while those of other calls
// in the same request have not.
var errNotDecided = errors.New("the Durable Object of the key is unavailable")

// maxParts bounds the parts of all calls of a request.
const maxParts = 64

// A part is what a call does to one record. Its names are printable ASCII.
type part struct {
	kind, name, key, what string

	numbers []int64 // of the kind, see worker/src/part.ts
}

// A reply is the numbers of each part of a call, see worker/src/bucket.ts and record.ts.
type reply struct {
	parts          [][]int64
	tick           time.Duration // resolution of the object's clock
	sent, received time.Duration // when the request was sent and the reply received
}

// A limitCall is one call of a limiter, or of several that decide together: each of the parts takes
// its cost, or none does.
type limitCall = batch.Call[[]part, reply]

// errSplit is the error of a call whose keys are in several Durable Objects. Nothing was taken.
var errSplit = fmt.Errorf("the keys are in several Durable Objects: %w", batch.ErrSplit)

// do executes a call, in a request that it may share with others.
func (c *Client) do(ctx context.Context, parts []part) (reply, error) {
	call := &limitCall{Request: parts}
	if err := c.calls.Do(ctx, call); err != nil {
		return reply{}, err // the call may still be running
	}
	return call.Response, nil
}

// exec sends calls in one request, or in several if their parts are too many.
func (c *Client) exec(ctx context.Context, calls []*limitCall) {
	var all sync.WaitGroup
	defer all.Wait()
	first, parts := 0, 0
	for i, call := range calls {
		if parts += len(call.Request); parts > maxParts {
			some := calls[first:i]
			all.Go(func() { c.send(ctx, some) })
			first, parts = i, len(call.Request)
		}
	}
	c.send(ctx, calls[first:])
}

// send sends calls in one request.
func (c *Client) send(ctx context.Context, calls []*limitCall) {
	sent := c.now()
	replies, tick, err := c.limit(ctx, calls)
	received := c.now()
	for i, call := range calls {
		switch {
		case err != nil:
			call.Err = err
		case replies[i] == nil:
			call.Err = errNotDecided
		case len(replies[i]) == 0:
			call.Err = errSplit
		case len(replies[i]) != len(call.Request):
			call.Err = fmt.Errorf("the Worker answered %d of %d parts of a call", len(replies[i]), len(call.Request))
		default:
			call.Response = reply{replies[i], tick, sent, received}
		}
	}
}

// limit executes calls, and returns a reply for each of them, and the resolution of the clock.
func (c *Client) limit(ctx context.Context, calls []*limitCall) ([][][]int64, time.Duration, error) {
	body := fmt.Appendf(nil, `{"v":%d,"calls":[`, protocolVersion)
	for i, call := range calls {
		for n, p := range call.Request {
			body = append(body, separator(i, n)...)
			body = appendCall(body, []string{p.kind, p.name, p.key, p.what}, p.numbers...)
		}
	}
	var reply struct {
		V       int
		Tick    int64 // in microseconds
		Replies [][][]int64
	}
	if err := c.post(ctx, c.limitURL, append(body, "]]}"...), &reply); err != nil {
		return nil, 0, err
	}
	if err := c.checkReply(reply.V, len(reply.Replies), len(calls)); err != nil {
		return nil, 0, err
	}
	tick := time.Duration(reply.Tick) * time.Microsecond
	if reply.Tick < 1 || tick > time.Second {
		return nil, 0, fmt.Errorf("the clock of %s has a resolution of %d µs; it must be from 1 µs to 1 s", c.host, reply.Tick)
	}
	return reply.Replies, tick, nil
}

// replyErrorf returns an error about a reply that is no decision.
func replyErrorf(format string, args ...any) error {
	return fmt.Errorf("durableobject: limiter: the Worker returned "+format, args...)
}

// separator returns what is before part n of call i.
func separator(i, n int) string {
	switch {
	case n > 0:
		return ","
	case i > 0:
		return "],["
	default:
		return "["
	}
}

// semaphore executes calls of semaphores. The outcome of a call that was not decided is nil.
func (c *Client) semaphore(ctx context.Context, calls []*permitCall) ([]*permitResponse, error) {
	body := fmt.Appendf(nil, `{"v":%d,"calls":[`, protocolVersion)
	for i, call := range calls {
		r := &call.Request
		if i > 0 {
			body = append(body, ',')
		}
		body = appendCall(body, []string{r.key, r.holder}, min(r.permits, maxNumber), r.lease.Milliseconds(), int64(r.purpose))
	}
	var reply struct {
		V       int
		Permits [][]int64
	}
	if err := c.post(ctx, c.semaphoreURL, append(body, "]}"...), &reply); err != nil {
		return nil, err
	}
	if err := c.checkReply(reply.V, len(reply.Permits), len(calls)); err != nil {
		return nil, err
	}
	responses := make([]*permitResponse, len(calls))
	for i, p := range reply.Permits {
		switch {
		case p == nil:
		case len(p) != 2 || p[0] < 0 || p[0] > 1 || p[1] < p[0]:
			return nil, fmt.Errorf("the Worker at %s returned %d for a permit", c.host, p)
		default:
			responses[i] = &permitResponse{acquired: p[0] == 1, inUse: p[1]}
		}
	}
	return responses, nil
}

func (c *Client) checkReply(version, replies, calls int) error {
	switch {
	case version != protocolVersion:
		return fmt.Errorf("the reply of %s has version %d; it must be %d, so deploy the Worker of this release", c.host, version, protocolVersion)
	case replies != calls:
		return fmt.Errorf("%s answered %d of %d calls", c.host, replies, calls)
	}
	return nil
}

// appendCall appends an array of the names, which are printable ASCII, and the numbers.
func appendCall(body []byte, names []string, numbers ...int64) []byte {
	body = append(body, '[')
	for i, name := range names {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendQuote(body, name) // Go and JSON quote printable ASCII alike
	}
	for _, n := range numbers {
		body = append(body, ',')
		body = strconv.AppendInt(body, n, 10)
	}
	return append(body, ']')
}
