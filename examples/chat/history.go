package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
)

// A history keeps the latest messages of each room, oldest first. It is safe for concurrent use.
// Two messages that are sent at the same moment may be in another order than the members of a
// room have received them.
type history interface {
	// add returns when the history holds the message. After an error, it is unknown whether it
	// does.
	add(context.Context, roomKey, Said) error

	// list returns every message that was added before, on any node, within the limits below. The
	// slice belongs to the caller.
	list(context.Context, roomKey) ([]Said, error)
}

const (
	maxHistory    = 100            // messages of a room
	maxHistoryAge = 24 * time.Hour // of messages in Redis
)

// memoryHistory keeps the history of maxRooms rooms in this process.
type memoryHistory struct {
	mu    sync.Mutex
	byKey map[roomKey][]Said // none is empty
}

func newMemoryHistory() *memoryHistory { return &memoryHistory{byKey: map[roomKey][]Said{}} }

func (h *memoryHistory) add(_ context.Context, key roomKey, said Said) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[key] == nil && len(h.byKey) >= maxRooms {
		delete(h.byKey, h.quietest())
	}
	messages := append(h.byKey[key], said)
	if len(messages) > maxHistory {
		messages = slices.Clone(messages[len(messages)-maxHistory:])
	}
	h.byKey[key] = messages
	return nil
}

// quietest returns the room whose latest message is the oldest. The caller holds mu.
func (h *memoryHistory) quietest() (quietest roomKey) {
	var since time.Time
	for key, messages := range h.byKey {
		if at := messages[len(messages)-1].At; since.IsZero() || at.Before(since) {
			quietest, since = key, at
		}
	}
	return quietest
}

func (h *memoryHistory) list(_ context.Context, key roomKey) ([]Said, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.byKey[key]), nil
}

// redisHistory keeps the history of each room in a Redis stream that all nodes share, in the order
// in which Redis has received the messages.
type redisHistory struct{ client *goredis.Client }

// newRedisHistory returns a history with a client of its own, which gives up early: a user waits
// for the result. It never repeats a command, which would store a message twice.
func newRedisHistory(opts goredis.Options) *redisHistory {
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = time.Second, time.Second, time.Second
	opts.MaxRetries = -1
	return &redisHistory{goredis.NewClient(&opts)}
}

const streamField = "said" // of each entry: the message as JSON

func (k roomKey) stream() string { return "penstock-chat:history:" + k.topic() }

func (h *redisHistory) add(ctx context.Context, key roomKey, said Said) error {
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	_, err = h.client.TxPipelined(ctx, func(tx goredis.Pipeliner) error {
		tx.XAdd(ctx, &goredis.XAddArgs{Stream: key.stream(), MaxLen: maxHistory, Values: []any{streamField, text}})
		tx.Expire(ctx, key.stream(), maxHistoryAge)
		return nil
	})
	return unavailable(err)
}

func (h *redisHistory) list(ctx context.Context, key roomKey) ([]Said, error) {
	oldest := strconv.FormatInt(time.Now().Add(-maxHistoryAge).UnixMilli(), 10)
	entries, err := h.client.XRange(ctx, key.stream(), oldest, "+").Result()
	if err != nil {
		return nil, unavailable(err)
	}
	messages := make([]Said, len(entries))
	for i, entry := range entries {
		text, _ := entry.Values[streamField].(string)
		if err := json.Unmarshal([]byte(text), &messages[i]); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// unavailable makes an error of Redis one that the client may retry.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &errors.Error{Code: errors.Unavailable, Message: "the history of the room cannot be reached", Err: err}
}
