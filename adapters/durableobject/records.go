package durableobject

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// records are the buckets or the records of a limiter: one for each key.
type records struct {
	client *Client
	kind   string           // one of the Worker's
	name   string           // of the limiter among those of its kind
	clock  func() time.Time // of the calendar
}

// newRecords returns the records of a limiter with a policy of a name.
func newRecords(client *Client, kind, policyName string) *records {
	if client == nil {
		panic("durableobject: a limiter needs a client, as NewClient returns it")
	}
	return &records{client: client, kind: kind, name: client.prefix + keyname.ASCII(policyName), clock: time.Now}
}

// Now returns the time of the client's monotonic clock.
func (r *records) Now() time.Duration { return r.client.now() }

// Time returns the time of the calendar.
func (r *records) Time() time.Time { return r.clock() }

// NamePrefix returns how the names of all records begin.
func (r *records) NamePrefix() string { return r.kind + ":" + r.name }

// Name returns the name of a key's record.
func (r *records) Name(key *limit.Key) string { return r.NamePrefix() + ":" + nameOf(key) }

func nameOf(key *limit.Key) string { return keyname.JoinASCII("", keyname.Parts(key)) }

// SharesWith reports whether a store has the same client.
func (r *records) SharesWith(other batch.Store) bool {
	o, ok := other.(*records)
	return ok && o.client == r.client
}

// newPart returns a part of a call about the record of a key.
func (r *records) newPart(key *limit.Key, what string, numbers ...int64) part {
	return part{kind: r.kind, name: r.name, key: nameOf(key), what: what, numbers: numbers}
}

// SetBlock removes what counts for a key, and blocks it unless d is 0.
func (r *records) SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	reply, err := r.client.do(ctx, []part{r.newPart(key, "block", d.Microseconds())})
	if err != nil {
		return err
	}
	if numbers := reply.parts[0]; !slices.Equal(numbers, []int64{1}) {
		return replyErrorf("%d about a block; it must be [1]", numbers)
	}
	return nil
}

// Do executes a request.
func (r *records) Do(ctx context.Context, request *batch.Request) (batch.Reply, error) {
	replies, err := r.DoAll(ctx, []batch.Part{{Store: r, Request: request}})
	if err != nil {
		return batch.Reply{}, err
	}
	return replies[0], nil
}

// DoAll takes what all parts say, or nothing, in one request to the Worker. The error is
// [batch.ErrSplit] if the keys are in several Durable Objects. Equal keys never are.
func (r *records) DoAll(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	if len(parts) > maxParts {
		return nil, batch.ErrSplit
	}
	sent := make([]part, len(parts))
	for i, p := range parts {
		sent[i] = p.Store.(*records).part(p.Request)
	}
	reply, err := r.client.do(ctx, sent)
	if err != nil {
		return nil, err
	}
	replies := make([]batch.Reply, len(parts))
	for i, p := range parts {
		if replies[i], err = replyTo(p.Request, &reply, i); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// part returns what the Worker does for a request.
func (r *records) part(request *batch.Request) part {
	if request.Policy != nil {
		return r.bucketPart(request)
	}
	return r.recordPart(request)
}

// replyTo returns what a reply says about a request.
func replyTo(request *batch.Request, r *reply, i int) (batch.Reply, error) {
	answer, err := batch.Reply{Sent: r.sent, Received: r.received}, error(nil)
	if request.Policy != nil {
		answer.State, err = bucketState(request.Policy, r.parts[i], r.tick)
		return answer, err
	}
	answer.Record, err = countReply(r.parts[i], r.tick)
	answer.Record.Sent, answer.Record.Received = r.sent, r.received
	return answer, err
}

// settlementNumbers returns the last numbers of a part that settles a lease.
func settlementNumbers(l batch.Lease) []int64 {
	returns := int64(0)
	if l.Returns {
		returns = 1
	}
	return []int64{l.ID, l.Excess, returns}
}
