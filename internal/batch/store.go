package batch

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Store keeps the buckets or the records of one [Limiter]. It is safe for concurrent use.
type Store interface { //nolint:interfacebloat // all of it differs between stores
	// Do executes a request, whose Never is false. The reply describes the bucket before it, or the
	// record after it.
	Do(ctx context.Context, r *Request) (Reply, error)

	// DoAll takes what all parts say, in one step, or nothing. All stores of the parts share with this
	// one. Of a denied call, the replies describe the buckets and records before it. After a part that
	// denies, no other starts a penalty. The error is [ErrSplit] if the parts need several steps.
	DoAll(ctx context.Context, parts []Part) ([]Reply, error)

	// SharesWith reports whether DoAll accepts parts of another store.
	SharesWith(other Store) bool

	// SetBlock removes what a key has taken, and blocks the key unless d is 0.
	SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error

	// NamePrefix returns how the names of all buckets or records begin. Limiters whose prefixes are equal
	// share them.
	NamePrefix() string

	// Name returns the name of the bucket or the record of a key. It identifies it among those of all
	// stores that share.
	Name(key *limit.Key) string

	// Now returns the time of a monotonic clock of this process.
	Now() time.Duration

	// Time returns the time of the calendar, for the periods of quotas.
	Time() time.Time
}

// ErrSplit is the error of [Store.DoAll] if no single step can decide about all parts. Nothing was
// taken.
var ErrSplit = errors.New("no single step decides about all keys")

// A Request is what a store does for a take of a key.
type Request struct {
	Key  limit.Key
	Mode mode.Mode // of the take
	// IsPlain says that the take is one of [limit.Consume].
	IsPlain bool
	// Never says that the cost is above the limit: the request denies in any case.
	Never bool

	Policy *Policy // of a token bucket; nil for a record
	Bucket Take    // with a Policy

	Record RecordTake // without a Policy
	// Numbers are those of the policy of a record: the Max, and the milliseconds of a counter's window,
	// the microseconds of a log's window and penalty, or the bounds of a quota's [Periods].
	Numbers []int64
}

// A Part is a request to one store of a joint call.
type Part struct {
	Store   Store
	Request *Request
}

// A Reply is what a store has found: the state of a bucket before a Take, or a record.
type Reply struct {
	State          State
	Record         RecordReply
	Sent, Received time.Duration // of State: when the request was sent and the reply received
}
