package redis

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// records are what cooldowns, sliding windows and quotas have of their keys: a key has one record,
// which one script reads and changes.
type records struct {
	keyspace
	script string // one of the kinds
	calls  *redisclient.Batcher
}

// The kinds of records, each with a script.
const (
	kindCounter = "counter"
	kindLog     = "log" // and of cooldowns
	kindQuota   = "quota"
)

//go:embed record_block.lua
var recordBlockLua string

//go:embed record_set_block.lua
var recordSetBlockLua string

// recordLua returns the script for records of a kind.
func recordLua(kind string) string {
	return recordBlockLua + map[string]string{kindCounter: slidingCounterLua, kindLog: slidingLogLua, kindQuota: leaseFunctionsLua() + quotaLua}[kind]
}

// newRecords returns the records of a limiter. The kind, such as "cooldown", is a part of their
// names.
func newRecords(client goredis.UniversalClient, kind, policyName, script string) *records {
	r := &records{keyspace: newKeyspace(client, kind, policyName, kind, recordSetBlockLua), script: script}
	r.calls = redisclient.NewBatcher(r.name, r.client, redisclient.NewScript(recordLua(script)), batch.RecordNumbers)
	return r
}

// SetBlock removes a record, and blocks its key unless d is 0.
func (r *records) SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	if d > 0 {
		return r.keyspace.SetBlock(ctx, key, d)
	}
	if err := r.client.Del(ctx, r.Name(key)).Err(); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// Do executes a request.
func (r *records) Do(ctx context.Context, request *batch.Request) (batch.Reply, error) {
	args := append(make([]any, 0, 12), 1, r.Name(&request.Key))
	args = r.scriptArgs(args, request)
	sent, call := r.now(), &redisclient.Call{Request: args}
	if err := r.calls.Do(ctx, call); err != nil {
		return batch.Reply{}, err
	}
	reply := batch.NewRecordReply(call.Response)
	reply.Sent, reply.Received = sent, r.now()
	return batch.Reply{Record: reply}, nil
}

// quotaNumbers is how many numbers of a quota's policy are arguments of every call. The last one is
// that of a call that may wait.
const quotaNumbers = 5

func (r *records) scriptArgs(args []any, request *batch.Request) []any {
	numbers, what := request.Numbers, &request.Record
	for _, n := range numbers[:min(len(numbers), quotaNumbers)] {
		args = append(args, n)
	}
	args = append(args, what.What, what.Cost, what.Stamp)
	if what.Stamp > 0 && what.What != batch.Undo && len(numbers) > quotaNumbers {
		args = append(args, numbers[quotaNumbers])
	}
	if what.What == batch.Settle {
		args[len(args)-1] = what.Lease.Excess // in place of a stamp
		return append(args, what.Lease.ID, what.Lease.Returns, adapter.MaxLeases)
	}
	return append(args, leaseArgs(what.Lease)...)
}

// jointArgs returns the kind and the arguments of a part of a joint call.
func (r *records) jointArgs(request *batch.Request) (kind string, args []any) {
	return r.script, r.scriptArgs(nil, request)
}

// jointReply returns what the numbers of a joint call say, and the numbers behind them.
func (r *records) jointReply(numbers []int64) (batch.Reply, []int64) {
	return batch.Reply{Record: batch.NewRecordReply(numbers)}, numbers[batch.RecordNumbers:]
}
