package redis

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// valueLua is the source of the script for values.
//
//go:embed value.lua
var valueLua string

// valueKind distributes values among the partitions.
const valueKind cluster.Kind = "value"

func (s *historyNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := s.check(ctx); err != nil {
		return broker.Value{}, err
	}
	version, data, err := s.callValue(ctx, s.scripts.value, []any{1, s.valueKey(key)})
	switch {
	case err == nil && version > 0:
		return broker.Value{Version: version, Data: []byte(data)}, nil
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
	text, args := s.scripts.value, []any{1, s.valueKey(key), strconv.FormatUint(version, 10)}
	if lifetime > 0 {
		millis := max(1, min(lifetime, maxAge).Milliseconds())
		// A call that is being sent when its context ends outlives this one, so it needs its own data.
		text, args = s.scripts.storeValue, append(args, strconv.FormatUint(random.Uint64()|1, 10), string(data), millis)
		args = append(args, place...)
	}
	newVersion, _, err := s.callValue(ctx, text, args)
	switch {
	case err == nil:
		return newVersion, nil
	case goredis.HasErrorPrefix(err, "OTHERVERSION"):
		return 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	case goredis.HasErrorPrefix(err, "SHORTVALUE"):
		return 0, errors.Errorf(errors.InvalidArgument, "the value of %q is shorter than the patch", key)
	default:
		return 0, storeError("value", err)
	}
}

// callValue calls the script for values on the master.
func (s *historyNode) callValue(ctx context.Context, text *redisclient.Script, args []any) (version uint64, data string, err error) {
	c := &readCall{Request: readRequest{text, args}}
	if err := s.reads.Do(ctx, c); err != nil {
		return 0, "", err
	}
	reply, _ := c.Response.([]any)
	return parseValue(reply)
}

// valueKey returns the name of a value in Redis.
func (s *historyNode) valueKey(key string) string {
	_, name := s.keyOf(valueKind, key)
	return name
}

func parseValue(reply []any) (version uint64, data string, err error) {
	if len(reply) != 2 {
		return 0, "", errUnexpectedReply
	}
	text, _ := reply[0].(string)
	data, ok := reply[1].(string)
	version, err = strconv.ParseUint(text, 10, 64)
	if err != nil || !ok {
		return 0, "", errUnexpectedReply
	}
	return version, data, nil
}
