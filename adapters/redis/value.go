package redis

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
)

// valueLua is the source of the script for values.
//
//go:embed value.lua
var valueLua string

// valueKind distributes values among the partitions.
const valueKind cluster.Kind = "value"

// LoadValue returns the value of a key.
func (s *historySession) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := s.check(ctx); err != nil {
		return broker.Value{}, err
	}
	reply, err := s.call(ctx, s.scripts.loadValue, []any{1, s.valueKey(key)})
	if err != nil {
		return broker.Value{}, err
	}
	version, data, err := parseValue(reply)
	if err != nil || version == 0 {
		return broker.Value{}, err
	}
	return broker.Value{Version: version, Data: []byte(data)}, nil
}

// StoreValue replaces the value of a key.
func (s *historySession) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	millis := lifetime.Milliseconds()
	if lifetime > 0 {
		millis = max(1, min(millis, maxAge.Milliseconds()))
	}
	args := []any{1, s.valueKey(key), strconv.FormatUint(version, 10), strconv.FormatUint(rand.Uint64()|1, 10), data, max(millis, 0)}
	c := &readCall{Request: readRequest{s.scripts.storeValue, args}}
	err := s.reads.Do(ctx, c)
	switch {
	case err == nil:
	case goredis.HasErrorPrefix(err, "OTHERVERSION"):
		return 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	default:
		return 0, storeError("value", err)
	}
	reply, _ := c.Response.([]any)
	newVersion, _, err := parseValue(reply)
	return newVersion, err
}

// valueKey returns the name of a value in Redis.
func (s *historySession) valueKey(key string) string {
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
