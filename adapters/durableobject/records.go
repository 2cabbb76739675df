package durableobject

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A records value names the records of a limiter: one for each key.
type records struct {
	client *Client
	kind   string // one of the Worker's
	name   string // of the limiter among those of its kind
	seed   maphash.Seed
}

// newRecords returns the records of a limiter with a policy of a name.
func newRecords(client *Client, kind, policyName string) records {
	if client == nil {
		panic("durableobject: a limiter needs a client, as NewClient returns it")
	}
	return records{client: client, kind: kind, name: client.prefix + keyname.ASCII(policyName), seed: maphash.MakeSeed()}
}

// newPart returns a part of a call about the record of a key.
func (r *records) newPart(key *limit.Key, what string, numbers ...int64) part {
	return part{kind: r.kind, name: r.name, key: keyname.JoinASCII("", keyname.Parts(key)), what: what, numbers: numbers}
}

// block denies key for d; after that, nothing counts.
func (r *records) block(ctx context.Context, key *limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	return r.setBlock(ctx, key, d)
}

// reset removes what counts, and ends a block.
func (r *records) reset(ctx context.Context, key *limit.Key) error { return r.setBlock(ctx, key, 0) }

func (r *records) setBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	reply, err := r.client.do(ctx, []part{r.newPart(key, "block", d.Microseconds())})
	if err != nil {
		return err
	}
	if numbers := reply.parts[0]; !slices.Equal(numbers, []int64{1}) {
		return replyErrorf("%d about a block; it must be [1]", numbers)
	}
	return nil
}
