package chat

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A chatNode is the chat on one node.
type chatNode struct{ *server }

func (n chatNode) Shutdown(ctx context.Context) error { return n.router.Shutdown(ctx) }

// A chatCluster is the chat on three nodes.
type chatCluster struct{ *routertest.Cluster }

// inCluster runs a test in a bubble, with a few seeds.
func inCluster(t *testing.T, test func(*testing.T, chatCluster)) {
	t.Helper()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			start := func(b broker.HistoryBroker) routertest.App {
				cfg := newConfig(t, "-capacity=1000")
				cfg.broker = b
				return chatNode{newServer(cfg)}
			}
			test(t, chatCluster{routertest.NewCluster(t, start, &routertest.ClusterOptions{Seed: seed})})
		})
	}
}

// A member is a client that joins the room "go", and joins it again on every connection.
type member struct {
	*client.Client

	name string
	t    *testing.T

	mu       sync.Mutex
	joined   RoomJoined // the last one
	seen     map[string]bool
	messages []Said
}

func (c chatCluster) member(t *testing.T, name string) *member {
	t.Helper()
	m := &member{name: name, t: t, seen: map[string]bool{}}
	m.Client = c.Client(name, &client.Options{
		Token:  func(context.Context, bool) (string, error) { return name, nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	client.On(m.Client, func(said Said, r *client.Received) { m.receive(said, r.Position.Offset) })
	require.NoError(t, m.Connect(t.Context()))
	go m.run()
	c.Wait(time.Second)
	return m
}

// run joins the room on each connection. A client that moves to another one during a graceful shutdown remains open,
// so its ID shows that.
func (m *member) run() {
	joined := ""
	for {
		select {
		case <-m.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
		conn, ok := m.Connection()
		if !ok || conn.ID == joined || !m.join() {
			continue
		}
		if after, ok := m.Connection(); ok && after.ID == conn.ID {
			joined = conn.ID
		}
	}
}

// join joins the room, and shows what the member has missed.
func (m *member) join() bool {
	m.mu.Lock()
	since := m.joined.Position
	m.mu.Unlock()
	joined, err := client.Call[RoomJoined](context.Background(), m.Client, JoinRoom{"go", since})
	if err != nil {
		return false
	}
	m.mu.Lock()
	m.joined = joined
	m.mu.Unlock()
	for _, said := range joined.History {
		m.receive(said, joined.Offset)
	}
	return true
}

func (m *member) receive(said Said, offset uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined.Offset = max(m.joined.Offset, offset)
	if !m.seen[said.ID] {
		m.seen[said.ID] = true
		m.messages = append(m.messages, said)
	}
}

func (m *member) texts() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return textsOf(slices.Clone(m.messages))
}

// say says messages first to last, and tries each one until it is stored.
func (m *member) say(first, last int) {
	m.t.Helper()
	for _, text := range textsFrom(first, last) {
		for attempt := 0; ; attempt++ {
			_, err := client.Call[Stored](m.t.Context(), m.Client, Say{Room: "go", Text: text, ID: m.name + text})
			if err == nil {
				break
			}
			require.Less(m.t, attempt, 100, "%v", err)
			time.Sleep(time.Second)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (m *member) who() []string {
	m.t.Helper()
	users, err := client.Call[Users](m.t.Context(), m.Client, Who{"go"})
	require.NoError(m.t, err)
	return users.Users
}

// talk lets ann say 60 messages while the cluster is disturbed, which both must see once and in order.
func talk(t *testing.T, c chatCluster, disturb func()) (ann, bob *member) {
	t.Helper()
	ann, bob = c.member(t, "ann"), c.member(t, "bob")
	var talking sync.WaitGroup
	talking.Go(func() { ann.say(1, 60) })
	c.Wait(time.Second)
	disturb()
	talking.Wait()
	c.Heal()
	c.Wait(2 * time.Minute)
	assert.Equal(t, textsFrom(1, 60), ann.texts())
	assert.Equal(t, textsFrom(1, 60), bob.texts())
	assert.Equal(t, []string{"ann", "bob"}, bob.who())
	for _, m := range []*member{ann, bob} {
		found, err := client.Call[HistoryFound](t.Context(), m.Client, SearchHistory{"go", "MESSAGE"})
		require.NoError(t, err)
		assert.Equal(t, textsFrom(1, 60), textsOf(found.Matches))
	}
	assert.Len(t, c.Store.Stored(topicOf(router.Identity{}, "go")), 60, "what is said again is stored once")
	return ann, bob
}

func TestCluster_RollingDeployLosesNoMessage(t *testing.T) {
	inCluster(t, func(t *testing.T, c chatCluster) { talk(t, c, c.Deploy) })
}

func TestCluster_ClientThatLosesItsNetworkMissesNoMessage(t *testing.T) {
	inCluster(t, func(t *testing.T, c chatCluster) {
		talk(t, c, func() {
			c.Abandon("bob")
			c.Stall("bob", 30*time.Second)
			c.Cut("ann")
		})
	})
}

func TestCluster_LostStoreStopsTheChatOnlyAsLongAsItIsAway(t *testing.T) {
	inCluster(t, func(t *testing.T, c chatCluster) {
		ann, bob := talk(t, c, func() {
			for node := 1; node <= 3; node++ {
				c.CutOff(node)
			}
			c.Wait(20 * time.Second)
			c.Heal()
			c.Store.SetFaults(brokertest.StoreFaults{LostAnswers: 0.3})
		})
		c.Store.RestartEmpty()
		c.Wait(10 * time.Second)
		ann.say(61, 65)
		c.Wait(time.Second)
		assert.Equal(t, textsFrom(1, 65), bob.texts())
		assert.Equal(t, textsFrom(61, 65), c.member(t, "eve").texts(), "what the store has lost is not in the history")
	})
}

func TestCluster_UsersOfKilledNodeLeave(t *testing.T) {
	inCluster(t, func(t *testing.T, c chatCluster) {
		ann, bob := c.member(t, "ann"), c.member(t, "bob")
		assert.Equal(t, []string{"ann", "bob"}, ann.who())
		c.Stall("bob", time.Hour) // he cannot return
		for node := 1; node <= 3; node++ {
			c.Kill(node)
			c.Start(node)
		}
		c.Wait(2 * time.Minute)
		assert.Equal(t, []string{"ann"}, ann.who())
		c.Heal()
		c.Wait(time.Minute)
		assert.Equal(t, []string{"ann", "bob"}, bob.who())
	})
}

func TestCluster_RandomFaultsLoseNoMessage(t *testing.T) {
	inCluster(t, func(t *testing.T, c chatCluster) { talk(t, c, func() { c.RandomFaults(2 * time.Minute) }) })
}
