package redis

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestHistory_RestartBeginsEpoch restarts a server that has saved a part of what was published.
func TestHistory_RestartBeginsEpoch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	for _, packet := range numbers(3) {
		n.publish(t, packet)
	}
	before, _ := n.page(t)
	require.NoError(t, server.Client(t).Save(t.Context()).Err())
	n.publish(t, "lost")
	n.publish(t, "lost")
	server.Restart()

	t.Run("when it is read", func(t *testing.T) {
		after, packets := n.page(t)
		assert.NotEqual(t, before.Position.Epoch, after.Position.Epoch)
		assert.EqualValues(t, 3, after.Position.Offset)
		assert.Equal(t, before.Position, after.Previous)
		assert.Equal(t, numbers(3), packets)
		assert.Equal(t, broker.Position{Epoch: after.Position.Epoch, Offset: 4}, n.publish(t, "4").Position)
	})
	t.Run("when it is published", func(t *testing.T) {
		last, _ := n.page(t)
		require.NoError(t, server.Client(t).Save(t.Context()).Err())
		server.Restart()
		appended := n.publish(t, "5")
		after, packets := n.page(t)
		assert.Equal(t, appended.Position, after.Position)
		assert.EqualValues(t, 5, after.Position.Offset)
		assert.Equal(t, last.Position, after.Previous)
		assert.NotEqual(t, last.Position.Epoch, after.Position.Epoch)
		assert.Equal(t, numbers(5), packets)
	})
}

func TestHistory_RestartWithoutDataBeginsAnew(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	n.publish(t, "lost")
	before, _ := n.page(t)
	server.Restart()
	after, packets := n.page(t)
	assert.NotEqual(t, before.Position.Epoch, after.Position.Epoch)
	assert.Zero(t, after.Position.Offset)
	assert.Zero(t, after.Previous)
	assert.Empty(t, packets)
}

func TestHistory_LostKeysBeginEpoch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	keys := n.keysOf("news")
	n.publish(t, "1")
	n.publish(t, "2")
	first, _ := n.page(t)

	require.NoError(t, admin.Del(t.Context(), keys.stream).Err())
	page, packets := n.page(t)
	assert.Equal(t, first.Position, page.Position)
	assert.Empty(t, packets)
	n.publish(t, "3")
	page, packets = n.page(t)
	assert.Equal(t, broker.Position{Epoch: first.Position.Epoch, Offset: 3}, page.Position)
	assert.Equal(t, []string{"3"}, packets)

	require.NoError(t, admin.Del(t.Context(), keys.channel.Name).Err())
	appended := n.publish(t, "4")
	assert.EqualValues(t, 1, appended.Position.Offset)
	assert.NotEqual(t, first.Position.Epoch, appended.Position.Epoch)
	page, packets = n.page(t)
	assert.Equal(t, appended.Position, page.Position)
	assert.Equal(t, []string{"4"}, packets)
	assert.Zero(t, page.Previous)
}

func TestHistory_ScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := connectHistory(t, server.Client(t))
	for _, packet := range numbers(3) {
		n.publish(t, packet)
		n.page(t)
		require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	}
	page, packets := n.page(t)
	assert.EqualValues(t, 3, page.Position.Offset)
	assert.Equal(t, numbers(3), packets)
}

// TestHistory_FullMemory fills the memory of a server.
func TestHistory_FullMemory(t *testing.T) {
	t.Parallel()
	for _, plain := range testscale.Sample([]bool{false, true}, 1) {
		t.Run(fmt.Sprintf("plain scripts: %v", plain), func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
			admin := server.Client(t)
			n := connectHistory(t, server.Client(t))
			for _, s := range []*redisclient.Script{n.scripts.append, n.scripts.read} {
				s.IsPlain.Store(plain)
			}
			n.followNews(t)
			r := broker.Retention{Messages: 100_000}
			publish := func(topic string) error {
				_, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: r, Packet: make([]byte, 10_000), IdempotencyKey: fmt.Sprint(time.Now().UnixNano())})
				return err
			}
			stored, err := uint64(0), error(nil)
			for ; err == nil && stored < 20_000; stored++ {
				err = publish("news")
			}
			require.Error(t, err)
			stored--
			assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
			unusedTopic := ""
			for i := range 100 { // the server may free a little memory, that of a connection's buffer
				unusedTopic = fmt.Sprint("new topic ", i)
				if err = publish(unusedTopic); err != nil {
					break
				}
			}
			assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
			unused, err := n.Read(t.Context(), broker.Query{Topic: unusedTopic, Retention: r})
			require.NoError(t, err, "reading needs no memory")
			assert.NotEmpty(t, unused.Position.Epoch)
			page, _ := n.read(t, broker.Query{Retention: r, After: stored - 1, Limit: 10})
			assert.Equal(t, stored, page.Position.Offset)
			assert.Len(t, page.Publications, 1)

			require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
			require.NoError(t, publish("news"))
			page, _ = n.read(t, broker.Query{Retention: r, Limit: 100_000})
			assert.Equal(t, stored+1, page.Position.Offset)
			assert.Len(t, page.Publications, int(page.Position.Offset))
			n.eventually(t, "published", func() bool { return len(n.published) == int(stored)+1 })
			for i, p := range n.published {
				assert.EqualValues(t, i+1, p.Position.Offset)
			}
		})
	}
}

// TestHistory_OutcomeOfInterruptedPublication interrupts the connection before or after the server
// receives a publication.
func TestHistory_OutcomeOfInterruptedPublication(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })
	n, observer := connectHistory(t, client), connectHistory(t, server.Client(t))
	n.publish(t, "1")
	appendNext := func(ctx context.Context) error {
		_, err := n.Append(ctx, broker.Append{Topic: "news", Retention: retention, Packet: []byte("2"), IdempotencyKey: "second"})
		return err
	}
	stored := func(offset uint64) func() bool {
		return func() bool {
			page, err := observer.Read(t.Context(), broker.Query{Topic: "news", Retention: retention})
			return err == nil && page.Position.Offset == offset
		}
	}

	proxy.StallReplies()
	ctx, cancel := context.WithCancel(t.Context())
	result, second := make(chan error, 1), make(chan error, 1)
	go func() { result <- appendNext(ctx) }()
	require.Eventually(t, stored(2), time.Minute, 5*time.Millisecond)
	go func() { // waits behind the first
		_, err := n.Append(ctx, broker.Append{Topic: "news", Retention: retention, Packet: []byte("never sent")})
		second <- err
	}()
	require.Eventually(t, func() bool { return n.queue.Waiting() == 1 }, time.Minute, time.Millisecond)
	cancel()
	err := <-result
	assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
	require.ErrorIs(t, err, context.Canceled)
	err = <-second
	assert.Equal(t, context.Canceled, err, "it was not sent")

	go func() { result <- appendNext(t.Context()) }()
	require.Eventually(t, func() bool { return n.queue.Waiting() == 2 }, time.Minute, time.Millisecond, "behind the one that is never sent")
	proxy.Cut()
	require.Error(t, <-result)
	require.Eventually(t, func() bool { // idle connections of the client may be broken, too
		return errors.CodeOf(appendNext(t.Context())) == errors.Unavailable
	}, time.Minute, 10*time.Millisecond, "without a connection, nothing is sent")
	proxy.Restore()
	appended, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte("2"), IdempotencyKey: "second"})
	require.NoError(t, err)
	assert.True(t, appended.Duplicate)
	assert.EqualValues(t, 2, appended.Position.Offset)

	proxy.StallReplies()
	go func() {
		_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte("3")})
		result <- err
	}()
	require.Eventually(t, stored(3), time.Minute, 5*time.Millisecond)
	proxy.Cut()
	err = <-result
	assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
}

func TestHistory_EvictionPolicyIsChecked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	require.NoError(t, checkPolicy(t.Context(), client))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	require.ErrorContains(t, checkPolicy(t.Context(), client), "allkeys-lru")
	// A managed service forbids CONFIG.
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "default", "-config").Err())
	require.ErrorContains(t, checkPolicy(t.Context(), client), "allkeys-lru")
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "default", "-info").Err())
	require.ErrorContains(t, checkPolicy(t.Context(), client), "not readable")
}

// TestHistory_SlowDialIsUnavailable checks that a caller does not take the deadline of a dial for its own.
func TestHistory_SlowDialIsUnavailable(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, context.DeadlineExceeded
	}})
	defer func() { assert.NoError(t, client.Close()) }()
	_, err := connectHistory(t, client).Read(t.Context(), broker.Query{Topic: "news", Retention: retention, Limit: 1})
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err = connectHistory(t, client).Read(ctx, broker.Query{Topic: "news", Retention: retention, Limit: 1})
	assert.Equal(t, context.DeadlineExceeded, err)
}
