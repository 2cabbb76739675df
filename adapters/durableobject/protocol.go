package durableobject

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
)

// protocolVersion is the version of the requests and replies in this file. The Worker's side is in
// worker/src/request.ts.
const protocolVersion = 1

// blockedReply marks a blocked bucket: the Worker returns it minus the microseconds until the block
// ends.
const blockedReply = -1 << 52

// maxNumber is the largest number that the Worker takes.
const maxNumber = 1<<53 - 1

// errNotDecided is the error of a call whose Durable Object has failed, while those of other calls
// in the same request have not.
var errNotDecided = errors.New("the Durable Object of the key is unavailable")

// A bucketState is the state of a bucket in a reply, or why there is none.
type bucketState struct {
	state batch.State
	err   error
}

// limit executes calls of one policy.
func (c *Client) limit(ctx context.Context, p *bucketPolicy, calls []*bucketCall) ([]bucketState, error) {
	body := []byte(p.request)
	for i, call := range calls {
		r := &call.Request
		numbers := [4]int64{r.take.Units, r.take.Lowest, r.take.Divisor, r.take.Since}
		used := numbers[:3]
		if r.take.Since > 0 {
			used = numbers[:]
		}
		body = appendCall(body, i, []string{r.key}, used...)
	}
	var reply struct {
		V    int
		Tick int64 // resolution of the clock, in microseconds
		Held []*int64
		At   []int64 // when, in microseconds since 1970
	}
	if err := c.post(ctx, c.limitURL, append(body, "]}"...), &reply); err != nil {
		return nil, err
	}
	if err := c.checkReply(reply.V, min(len(reply.Held), len(reply.At)), len(calls)); err != nil {
		return nil, err
	}
	tick := time.Duration(reply.Tick) * time.Microsecond
	if reply.Tick < 1 || tick > time.Second {
		return nil, fmt.Errorf("the clock of %s has a resolution of %d µs; it must be from 1 µs to 1 s", c.host, reply.Tick)
	}
	states := make([]bucketState, len(calls))
	for i, held := range reply.Held {
		states[i] = newBucketState(held, tick, p)
		states[i].state.At = reply.At[i]
	}
	return states, nil
}

// newBucketState returns the state of a bucket that the Worker describes by a number.
func newBucketState(held *int64, tick time.Duration, p *bucketPolicy) bucketState {
	const maxBlockMicros = 366 * 24 * int64(time.Hour/time.Microsecond)
	switch {
	case held == nil:
		return bucketState{err: errNotDecided}
	case *held > p.Full(), *held < blockedReply-maxBlockMicros:
		return bucketState{err: fmt.Errorf("the Worker returned %d units of a bucket that holds %d", *held, p.Full())}
	case *held < blockedReply:
		return bucketState{state: batch.State{BlockedFor: time.Duration(blockedReply-*held) * time.Microsecond, Tick: tick}}
	default:
		return bucketState{state: batch.State{Units: *held, Tick: tick}}
	}
}

// block executes calls of Block and Reset, and returns which of them were executed.
func (c *Client) block(ctx context.Context, calls []*blockCall) ([]bool, error) {
	body := fmt.Appendf(nil, `{"v":%d,"calls":[`, protocolVersion)
	for i, call := range calls {
		body = appendCall(body, i, []string{call.Request.key}, call.Request.micros)
	}
	var reply struct {
		V    int
		Done []bool
	}
	if err := c.post(ctx, c.blockURL, append(body, "]}"...), &reply); err != nil {
		return nil, err
	}
	return reply.Done, c.checkReply(reply.V, len(reply.Done), len(calls))
}

// semaphore executes calls of semaphores. The outcome of a call that was not decided is nil.
func (c *Client) semaphore(ctx context.Context, calls []*permitCall) ([]*permitResponse, error) {
	body := fmt.Appendf(nil, `{"v":%d,"calls":[`, protocolVersion)
	for i, call := range calls {
		r := &call.Request
		body = appendCall(body, i, []string{r.key, r.holder}, min(r.permits, maxNumber), r.lease.Milliseconds(), int64(r.purpose))
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

// appendCall appends the call at position i to an array of calls: the names, which are printable
// ASCII, and the numbers.
func appendCall(body []byte, i int, names []string, numbers ...int64) []byte {
	if i > 0 {
		body = append(body, ',')
	}
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
