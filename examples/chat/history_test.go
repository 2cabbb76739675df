package main

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

// optionsOf returns the address and the credentials of client without its state.
func optionsOf(client *goredis.Client) goredis.Options {
	o := client.Options()
	return goredis.Options{Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB}
}

func TestHistory_KeepsLatest100MessagesOfEachRoom(t *testing.T) {
	client := redistest.Any(t)
	for name, h := range map[string]history{"memory": newMemoryHistory(), "redis": newRedisHistory(optionsOf(client))} {
		t.Run(name, func(t *testing.T) {
			tenant := redistest.Prefix(t)
			garden, shed := roomKey{tenant, "garden"}, roomKey{tenant, "shed"}
			messages, err := h.list(t.Context(), garden)
			require.NoError(t, err)
			assert.Empty(t, messages)
			var want []Said
			for n := range 150 {
				said := Said{"garden", "ann", fmt.Sprint(n), time.Now().UTC()}
				require.NoError(t, h.add(t.Context(), garden, said))
				want = append(want, said)
			}
			require.NoError(t, h.add(t.Context(), shed, Said{Room: "shed", Text: "hi"}))
			messages, err = h.list(t.Context(), garden)
			require.NoError(t, err)
			assert.Equal(t, want[50:], messages)
			messages, err = h.list(t.Context(), shed)
			require.NoError(t, err)
			assert.Len(t, messages, 1)
		})
	}
}

func TestMemoryHistory_ForgetsQuietestOfTooManyRooms(t *testing.T) {
	h := newMemoryHistory()
	start := time.Now()
	add := func(room string, at time.Duration) {
		require.NoError(t, h.add(t.Context(), roomKey{"", room}, Said{Room: room, At: start.Add(at)}))
	}
	for n := range maxRooms {
		add(fmt.Sprint(n), time.Duration(n)*time.Second)
	}
	add("0", time.Hour) // room 1 is the quietest
	add("one more", time.Hour)
	for room, want := range map[string]int{"0": 2, "1": 0, "2": 1, "one more": 1} {
		messages, err := h.list(t.Context(), roomKey{"", room})
		require.NoError(t, err)
		assert.Len(t, messages, want, room)
	}
}

func TestRedisHistory_ForgetsOldMessages(t *testing.T) {
	client := redistest.Any(t)
	h, key := newRedisHistory(optionsOf(client)), roomKey{redistest.Prefix(t), "garden"}
	old := &goredis.XAddArgs{Stream: key.stream(), ID: fmt.Sprint(time.Now().Add(-maxHistoryAge - time.Minute).UnixMilli()), Values: []any{streamField, `{"text":"old"}`}}
	require.NoError(t, client.XAdd(t.Context(), old).Err())
	require.NoError(t, h.add(t.Context(), key, Said{Text: "new"}))
	messages, err := h.list(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, []string{"new"}, textsOf(messages))
	ttl, err := client.TTL(t.Context(), key.stream()).Result()
	require.NoError(t, err)
	assert.InDelta(t, maxHistoryAge.Seconds(), ttl.Seconds(), 60, "a quiet room expires")
}

func TestRedisHistory_OutageIsUnavailable(t *testing.T) {
	h := newRedisHistory(goredis.Options{Addr: "127.0.0.1:1"})
	_, err := h.list(t.Context(), roomKey{"", "garden"})
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
	assert.Equal(t, errors.Unavailable, errors.CodeOf(h.add(t.Context(), roomKey{"", "garden"}, Said{})))
}
