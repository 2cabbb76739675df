package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
)

// A scriptCall is one execution of a script: the request is its arguments, the number of keys
// first, and the response is the numbers that it returns.
type scriptCall = batch.Call[[]any, []int64]

type scriptBatcher = batch.Batcher[[]any, []int64]

// anyNumber says that a script returns as many numbers as its arguments imply.
const anyNumber = -1

// newScriptBatcher returns a batcher whose round trips are pipelines of a script, each call on
// the node of its keys. The script returns that many numbers.
func newScriptBatcher(name string, client goredis.UniversalClient, s *script, numbers int) *scriptBatcher {
	exec := func(ctx context.Context, calls []*scriptCall) {
		args := make([][]any, len(calls))
		for i, c := range calls {
			args[i] = c.Request
		}
		for i, reply := range s.run(ctx, client, args) {
			c := calls[i]
			c.Response, c.Err = reply.Int64Slice()
			if c.Err == nil && numbers != anyNumber && len(c.Response) != numbers {
				c.Err = fmt.Errorf("the script returned %d numbers; it must return %d", len(c.Response), numbers)
			}
		}
	}
	return batch.New(name, batch.LimiterTimeout, exec, honorsDeadline(client))
}

// honorsDeadline reports whether a client stops at its context's deadline.
func honorsDeadline(client goredis.UniversalClient) bool {
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	default:
		return false
	}
}
