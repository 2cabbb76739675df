package redis

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// valueLua is the source of the scripts for values.
//
//go:embed value.lua
var valueLua string

// valueKind distributes values among the partitions.
const valueKind cluster.Kind = "value"

// A valueRequest loads or changes one value.
type valueRequest struct {
	stores    bool // it needs free memory
	partition int  // of the key
	key       string
	args      []any // of the script, see value.lua
}

// A valueReply is the version of a value, 0 if there is none, and its data if that was loaded.
type valueReply struct {
	version uint64
	data    string
}

type valueCall = batch.Call[valueRequest, valueReply]

func (s *historyNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := s.check(ctx); err != nil {
		return broker.Value{}, err
	}
	v, err := s.callValue(ctx, false, key)
	switch {
	case err == nil && v.version > 0:
		return broker.Value{Version: v.version, Data: []byte(v.data)}, nil
	case err == nil || errors.Is(err, ctx.Err()):
		return broker.Value{}, err
	default:
		return broker.Value{}, &errors.Error{Code: errors.Unavailable, Message: "the value cannot be loaded", Err: err}
	}
}

func (s *historyNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(ctx, key, data, version, lifetime)
}

// PatchValue changes a part of the value of a key.
func (s *historyNode) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(ctx, key, p.Data, version, lifetime, p.Offset, p.Remove)
}

// changeValue calls the script with the place of a patch, if there is one.
func (s *historyNode) changeValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration, place ...any) (uint64, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	args := []any{strconv.FormatUint(version, 10)}
	if lifetime > 0 {
		millis := max(1, min(lifetime, maxAge).Milliseconds())
		// A call that is being sent when its context ends outlives this one, so it needs its own data.
		args = append(args, strconv.FormatUint(random.Uint64()|1, 10), string(data), millis)
		args = append(args, place...)
	}
	v, err := s.callValue(ctx, lifetime > 0, key, args...)
	switch {
	case err == nil:
		return v.version, nil
	case goredis.HasErrorPrefix(err, "OTHERVERSION"):
		return 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	case goredis.HasErrorPrefix(err, "SHORTVALUE"):
		return 0, errors.Errorf(errors.InvalidArgument, "the value of %q is shorter than the patch", key)
	default:
		return 0, storeError("value", err)
	}
}

// callValue calls the script for values on the master.
func (s *historyNode) callValue(ctx context.Context, stores bool, key string, args ...any) (valueReply, error) {
	partition, name := s.keyOf(valueKind, key)
	c := &valueCall{Request: valueRequest{stores, partition, name, args}}
	if err := s.values.Do(ctx, c); err != nil {
		return valueReply{}, err
	}
	return c.Response, nil
}

// execValues executes calls in a round trip for those that need memory, and in one for the others.
func (s *historyNode) execValues(ctx context.Context, calls []*valueCall) {
	for _, text := range []*redisclient.Script{s.scripts.value, s.scripts.storeValue} {
		groups := s.groupValues(calls, text == s.scripts.storeValue)
		if len(groups) == 0 {
			continue
		}
		args := make([][]any, len(groups))
		for i, g := range groups {
			args[i] = valueArgs(g)
		}
		for i, reply := range text.Run(ctx, s.client, args) {
			results, err := reply.Slice()
			setValues(groups[i], results, err)
		}
	}
}

// groupValues returns the calls for each execution of a script. On a Cluster, each call has its own, because a
// script with several keys fails while their slot is moved.
func (s *historyNode) groupValues(calls []*valueCall, stores bool) (groups [][]*valueCall) {
	index := map[int]int{} // by partition
	for _, c := range calls {
		if c.Request.stores != stores {
			continue
		}
		i, ok := index[c.Request.partition]
		if !ok || s.engine.Cluster != nil {
			i = len(groups)
			index[c.Request.partition] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// valueArgs returns the arguments of a script call, see value.lua.
func valueArgs(calls []*valueCall) []any {
	const mostPerCall = 8
	args := append(make([]any, 0, 1+mostPerCall*len(calls)), len(calls))
	for _, c := range calls {
		args = append(args, c.Request.key)
	}
	for _, c := range calls {
		args = append(append(args, len(c.Request.args)), c.Request.args...)
	}
	return args
}

// setValues sets the results of a script call.
func setValues(calls []*valueCall, results []any, err error) {
	if err == nil && len(results) != len(calls) {
		err = errUnexpectedReply
	}
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.Response, c.Err = parseValue(results[i])
		}
	}
}

// A valueError is the error of one value, as the script returns it.
type valueError string

func (e valueError) Error() string { return string(e) }

// RedisError makes a valueError a [goredis.Error].
func (e valueError) RedisError() {}

func parseValue(reply any) (v valueReply, err error) {
	if failure, ok := reply.(string); ok {
		return v, valueError(failure)
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return v, errUnexpectedReply
	}
	text, _ := fields[0].(string)
	data, ok := fields[1].(string)
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !ok {
		return v, errUnexpectedReply
	}
	return valueReply{version, data}, nil
}
