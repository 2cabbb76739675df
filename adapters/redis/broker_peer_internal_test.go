package redis

import (
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

func TestBroker_PeersDoNotExpireWhileDisconnected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a := connect(server.Client(t))
	b := connect(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))
	defer b.Close()
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	a.Publish("news", []byte("hello"))
	b.eventually(t, "a packet", func() bool { return len(b.received) == 1 })
	proxy.Cut()
	time.Sleep(peerTimeout + 2*heartbeatInterval) // long enough to expire a peer
	proxy.Restore()
	b.eventually(t, "subscribed again", func() bool { return b.subscribed == 2 })
	time.Sleep(2 * heartbeatInterval) // in which NodeLeft could be called
	b.mu.Lock()
	assert.Zero(t, b.left)
	b.mu.Unlock()
	a.Close()
	b.eventually(t, "leave message", func() bool { return b.left == 1 })
}

// TestBroker_ReconfirmsWhenFailedPeerReturns sets the time at which one node last received the
// other one.
func TestBroker_ReconfirmsWhenFailedPeerReturns(t *testing.T) {
	server := redistest.Start(t)
	a, b := connectPair(t, server.Client(t), server.Client(t))
	paused, s := a.session().name, b.session()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.peers[paused] == nil || s.peers[s.name] == nil {
			return false
		}
		s.peers[paused].lastSeen = s.peers[s.name].lastSeen.Add(-2 * peerTimeout)
		return true
	}, 20*time.Second, time.Millisecond)
	s.expirePeers()
	b.eventually(t, "NodeLeft", func() bool { return b.left == 1 })
	b.eventually(t, "subscribed again", func() bool { return b.subscribed == 2 })
}

func TestBroker_NothingFollowsLeaveMessage(t *testing.T) {
	server := redistest.Start(t)
	b := connect(server.Client(t))
	defer b.Close()
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	const rounds = 40
	var names []string
	for range rounds {
		a := connect(server.Client(t))
		names = append(names, a.session().name)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						a.Publish("news", nil)
					}
				}
			})
		}
		time.Sleep(3 * time.Millisecond) // so that messages wait
		a.Close()
		close(stop)
		wg.Wait()
	}
	b.eventually(t, "NodeLeft", func() bool { return b.left >= rounds })
	s := b.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		assert.NotContains(t, s.peers, name, "a message arrived after the leave message")
	}
}

func TestBroker_CloseReportsNoLoss(t *testing.T) {
	a := connect(redistest.Start(t).Client(t))
	a.Subscribe("news")
	a.eventually(t, "subscribed", func() bool { return a.subscribed == 1 })
	a.Close()
	time.Sleep(200 * time.Millisecond) // in which a loss could be reported
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Zero(t, a.interrupts)
}
