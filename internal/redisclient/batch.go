package redisclient

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
)

// A Call is one execution of a script: the request is its arguments, the number of keys
// first, and the response is the numbers that it returns.
type Call = batch.Call[[]any, []int64]

// A Batcher runs calls that wait at the same time in one round trip.
type Batcher = batch.Batcher[[]any, []int64]

// AnyNumber says that a script returns as many numbers as its arguments imply.
const AnyNumber = -1

// NewBatcher returns a batcher whose round trips are pipelines of a script, each call on
// the node of its keys. The script returns that many numbers.
func NewBatcher(name string, client goredis.UniversalClient, s *Script, numbers int) *Batcher {
	exec := func(ctx context.Context, calls []*Call) {
		args := make([][]any, len(calls))
		for i, c := range calls {
			args[i] = c.Request
		}
		for i, reply := range s.Run(ctx, client, args) {
			c := calls[i]
			c.Response, c.Err = reply.Int64Slice()
			if c.Err == nil && numbers != AnyNumber && len(c.Response) != numbers {
				c.Err = fmt.Errorf("the script returned %d numbers; it must return %d", len(c.Response), numbers)
			}
		}
	}
	return batch.New(name, batch.LimiterTimeout, exec, HonorsDeadline(client))
}

// HonorsDeadline reports whether a client stops at its context's deadline.
func HonorsDeadline(client goredis.UniversalClient) bool {
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	default:
		return false
	}
}
