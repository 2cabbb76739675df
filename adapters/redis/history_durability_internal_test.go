package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var onReplica, onDisk = broker.Durability{Replicas: 1}, broker.Durability{OnDisk: true}

// appendWith appends a packet, which is also its idempotency key, to the topic news.
func (n *observedNode) appendWith(ctx context.Context, d broker.Durability, packet string) (broker.Appended, error) {
	return n.Append(ctx, broker.Append{Topic: "news", Retention: retention, Packet: []byte(packet), IdempotencyKey: packet, Durability: d})
}

// appendUnconfirmed appends a packet, whose publisher gives up when it is stored.
func (n *observedNode) appendUnconfirmed(t *testing.T, packet string) {
	t.Helper()
	require.Eventually(t, func() bool { return !n.queue.IsConfirming() }, time.Minute, time.Millisecond, "others have ended")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := n.appendWith(ctx, onReplica, packet)
		result <- err
	}()
	require.Eventually(t, n.queue.IsConfirming, time.Minute, time.Millisecond)
	cancel()
	err := <-result
	assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
	require.ErrorContains(t, err, "stored, but not confirmed")
}

// startReplicated starts a master and a replica that is in sync.
func startReplicated(t *testing.T, args ...string) (master, replica *redistest.Server) {
	t.Helper()
	master = redistest.Start(t, args...)
	return master, startReplica(t, master.Addr, master, args...)
}

// startReplica starts a replica that follows a master through addr.
func startReplica(t *testing.T, addr string, master *redistest.Server, args ...string) *redistest.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	replica := redistest.Start(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	require.Eventually(t, func() bool {
		return strings.Contains(master.Client(t).Info(t.Context(), "replication").Val(), "state=online")
	}, time.Minute, 10*time.Millisecond)
	return replica
}

// within checks that f returns in time: in the deadline of its caller, and what a busy computer takes.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	assert.Less(t, time.Since(began), limit+5*time.Second)
}

// TestHistory_ReplicaThatIsAwayConfirmsNothing stops the replica. Publications are stored and published
// nevertheless, and a retry is acknowledged only when the replica has the first one.
func TestHistory_ReplicaThatIsAwayConfirmsNothing(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_CloseWaitsForConfirmations")
	t.Parallel()
	master, replica := startReplicated(t)
	n, reader := connectHistory(t, master.Client(t)), connectHistory(t, master.Client(t))
	reader.followNews(t)
	first, err := n.appendWith(t.Context(), onReplica, "1")
	require.NoError(t, err)
	assert.EqualValues(t, 1, first.Position.Offset)

	replica.Pause()
	within(t, time.Second, func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.appendWith(ctx, onReplica, "2")
		assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	n.appendUnconfirmed(t, "2") // a duplicate is not confirmed either
	reader.eventually(t, "delivery before the confirmation", func() bool { return len(reader.published) == 2 })
	plain, err := n.appendWith(t.Context(), broker.Durability{}, "3")
	require.NoError(t, err, "nothing else waits")
	assert.EqualValues(t, 3, plain.Position.Offset)

	waiting := make(chan error, 1)
	go func() {
		_, err := n.appendWith(t.Context(), onReplica, "4")
		waiting <- err
	}()
	reader.eventually(t, "delivery before the confirmation", func() bool { return len(reader.published) == 4 })
	select {
	case err := <-waiting:
		require.Fail(t, "it is not confirmed", "%v", err)
	default:
	}
	replica.Resume()
	assert.NoError(t, <-waiting)
	again, err := n.appendWith(t.Context(), onReplica, "2")
	require.NoError(t, err)
	assert.Equal(t, broker.Appended{Position: broker.Position{Epoch: first.Position.Epoch, Offset: 2}, Duplicate: true}, again)
	_, packets := n.page(t)
	assert.Equal(t, numbers(4), packets)
	_, packets = connectHistory(t, asMaster(t, replica)).page(t)
	assert.Equal(t, numbers(4), packets, "the replica has what was acknowledged")
}

// asMaster promotes a replica and returns a client of it.
func asMaster(t *testing.T, replica *redistest.Server) *goredis.Client {
	t.Helper()
	require.NoError(t, replica.Client(t).Do(t.Context(), "replicaof", "no", "one").Err())
	return replica.Client(t)
}

// TestHistory_FailoverWithoutThePublication promotes a replica that has not received it, while its publisher waits.
func TestHistory_FailoverWithoutThePublication(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	backlog := redistest.StartProxy(t, master.Addr)
	replica := startReplica(t, backlog.Addr, master)
	proxy := redistest.StartProxy(t, master.Addr)
	n := connectHistory(t, master.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))
	reader := connectHistory(t, master.Client(t))
	reader.followNews(t)
	_, err := n.appendWith(t.Context(), onReplica, "1")
	require.NoError(t, err)
	backlog.Cut()
	lost := make(chan error, 1)
	go func() {
		_, err := n.appendWith(t.Context(), onReplica, "lost")
		lost <- err
	}()
	reader.eventually(t, "published", func() bool { return len(reader.published) == 2 })
	promoted := connectHistory(t, asMaster(t, replica))
	host, port, err := net.SplitHostPort(replica.Addr)
	require.NoError(t, err)
	require.NoError(t, master.Client(t).Do(t.Context(), "replicaof", host, port).Err()) // the old master loses it, too
	err = <-lost
	assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
	page, packets := promoted.page(t)
	assert.Equal(t, []string{"1"}, packets)
	assert.EqualValues(t, 1, page.Previous.Offset, "readers learn that what follows is lost")

	require.Eventually(t, func() bool {
		return strings.Contains(replica.Client(t).Info(t.Context(), "replication").Val(), "state=online")
	}, time.Minute, 10*time.Millisecond)
	again, err := promoted.appendWith(t.Context(), onReplica, "lost")
	require.NoError(t, err)
	assert.False(t, again.Duplicate, "its key was lost, too")
}

// TestHistory_ConfirmationsNameTheServer compares them before and after a failover: what one server has stored, the
// other does not confirm.
func TestHistory_ConfirmationsNameTheServer(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	n := connectHistory(t, master.Client(t))
	call := &appendCall{Append: broker.Append{Topic: "news", Retention: retention}, Keys: n.keysOf("news")}
	args := n.appendArgs(groupByTopic([]*appendCall{call}), true)
	results, err := n.scripts.append.Run(t.Context(), n.client, [][]any{args})[0].Slice()
	require.NoError(t, err)
	first := n.confirm(onReplica, 0, time.Minute)
	require.NoError(t, errors.Join(first.Err, first.Missing))
	assert.Equal(t, results[len(results)-1], first.Lineage)
	second := connectHistory(t, asMaster(t, replica)).confirm(broker.Durability{}, 0, time.Minute)
	require.NoError(t, second.Err)
	assert.NotEqual(t, first.Lineage, second.Lineage)
}

// An otherClient hides how many servers it has.
type otherClient struct{ goredis.UniversalClient }

// TestHistory_UnconfirmableIsNotStored asks for what the server or the client cannot do.
func TestHistory_UnconfirmableIsNotStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	forbidden := server.Client(t, func(o *goredis.Options) { o.Username, o.Password = "app", "secret" })
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "&*", "+@all", "-wait").Err())
	want := "appendonly yes"
	if !server.HasCommand(t, "waitaof") {
		want = "Redis 7.2 or newer"
	}
	for _, c := range []struct {
		client     goredis.UniversalClient
		durability broker.Durability
		want       string
	}{
		{server.Client(t), onDisk, want},
		{server.Client(t), broker.Durability{Replicas: 1, OnDisk: true}, want},
		{forbidden, onReplica, "NOPERM"},
		{otherClient{server.Client(t)}, onReplica, "redis.otherClient"},
	} {
		n := connectHistory(t, c.client)
		for range 2 {
			_, err := n.appendWith(t.Context(), c.durability, "refused")
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), err)
			require.ErrorContains(t, err, c.want)
		}
		_, err := n.appendWith(t.Context(), broker.Durability{}, c.want)
		require.NoError(t, err)
	}
	page, _ := connectHistory(t, server.Client(t)).page(t)
	for _, p := range page.Publications {
		assert.NotEqual(t, "refused", string(p.Packet))
	}
}

// TestHistory_UnreachableServerStoresNothing uses a Durability for the first time when the server is away.
func TestHistory_UnreachableServerStoresNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	n := connectHistory(t, server.Client(t, func(o *goredis.Options) { o.Addr, o.MaxRetries, o.DialerRetries = proxy.Addr, -1, 1 }))
	proxy.Cut()
	_, err := n.appendWith(t.Context(), onReplica, "1")
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
}

// TestHistory_FullMemoryConfirmsWhatIsStored fills the memory after a publication that was not confirmed.
func TestHistory_FullMemoryConfirmsWhatIsStored(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t, "--maxmemory-policy", "noeviction")
	n := connectHistory(t, master.Client(t))
	replica.Pause()
	n.appendUnconfirmed(t, "1")
	replica.Resume()
	require.NoError(t, master.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	assert.NoError(t, n.confirm(onReplica, 0, time.Second).Err)
	_, err := n.appendWith(t.Context(), onReplica, "2")
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
	require.NoError(t, master.Client(t).ConfigSet(t.Context(), "maxmemory", "0").Err())
	again, err := n.appendWith(t.Context(), onReplica, "1")
	require.NoError(t, err)
	assert.True(t, again.Duplicate)
}

// TestHistory_CloseWaitsForConfirmations closes a node whose publication is not confirmed yet.
func TestHistory_CloseWaitsForConfirmations(t *testing.T) {
	t.Parallel()
	master, replica := startReplicated(t)
	n, reader := connectHistory(t, master.Client(t)), connectHistory(t, master.Client(t))
	reader.followNews(t)
	_, err := n.appendWith(t.Context(), onReplica, "1")
	require.NoError(t, err)
	replica.Pause()
	result, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := n.appendWith(t.Context(), onReplica, "2")
		result <- err
	}()
	reader.eventually(t, "published", func() bool { return len(reader.published) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, 50*time.Millisecond, func() { _ = n.Close(ctx) })
	assert.Empty(t, result, "the publisher waits for the replica")
	go func() { closed <- n.Close(t.Context()) }()
	replica.Resume()
	require.NoError(t, <-result)
	require.NoError(t, <-closed)
}

// TestHistory_SurvivesKilledServer kills a server that writes to disk once per second, and starts it again.
func TestHistory_SurvivesKilledServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	if !server.HasCommand(t, "waitaof") {
		t.Skip("needs Redis 7.2 or newer, which has WAITAOF")
	}
	n := connectHistory(t, server.Client(t))
	for range testscale.Pick(1, 3) {
		const publishers = 64
		acknowledged := make(chan string, publishers)
		for i := range publishers {
			go func() {
				packet := fmt.Sprint(time.Now().UnixNano(), " ", i)
				_, err := n.appendWith(t.Context(), onDisk, packet)
				assert.NoError(t, err)
				acknowledged <- packet
			}()
		}
		want := map[string]bool{}
		for range publishers {
			want[<-acknowledged] = true
		}
		server.Restart()
		page, packets := n.page(t)
		assert.NotZero(t, page.Previous, "nodes read what they have missed")
		for _, packet := range packets {
			delete(want, packet)
		}
		assert.Empty(t, want, "acknowledged, but lost")
	}
}

func TestMissing_ComparesReplies(t *testing.T) {
	t.Parallel()
	two, disk, both := broker.Durability{Replicas: 2}, broker.Durability{OnDisk: true}, broker.Durability{Replicas: 1, OnDisk: true}
	for _, c := range []struct {
		d     broker.Durability
		reply any
		want  string
	}{
		{two, int64(0), "0 of 2 replicas have confirmed it in time"},
		{two, int64(1), "1 of 2 replicas have confirmed it in time"},
		{two, "2", "0 of 2 replicas have confirmed it in time"},
		{two, nil, "0 of 2 replicas have confirmed it in time"},
		{disk, []any{int64(0), int64(9)}, "the server has not written it to disk in time"},
		{disk, []any{int64(1)}, "the server has not written it to disk in time"},
		{disk, int64(9), "the server has not written it to disk in time"},
		{both, []any{int64(1), int64(0)}, "0 of 1 replicas have confirmed it in time"},
		{two, int64(2), ""},
		{two, int64(3), ""},
		{disk, []any{int64(1), int64(0)}, ""},
		{both, []any{int64(1), int64(1)}, ""},
	} {
		if err := missing(c.d, c.reply); c.want != "" {
			assert.EqualError(t, err, c.want, "%v: %v", c.d, c.reply)
		} else {
			assert.NoError(t, err, "%v: %v", c.d, c.reply)
		}
	}
}
