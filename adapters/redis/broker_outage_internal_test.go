package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

// A listener is a node that counts.
type listener struct {
	broker.Session

	mu         sync.Mutex
	received   []string
	subscribed int
	missed     int // of which the number is known
	interrupts int
	down       int
}

func listen(client goredis.UniversalClient) *listener {
	l := &listener{}
	with := func(f func()) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f()
	}
	l.Session = NewBroker(client).Connect(broker.Handler{
		Receive:    func(_, _ string, packet []byte) { with(func() { l.received = append(l.received, string(packet)) }) },
		Subscribed: func(string) { with(func() { l.subscribed++ }) },
		MessagesLost: func(_ string, packets int) {
			with(func() {
				l.missed += packets
				if packets == 0 {
					l.interrupts++
				}
			})
		},
		NodeLeft: func(string) { with(func() { l.down++ }) },
	})
	return l
}

// pair returns two nodes, of which the second hears news.
func pair(t *testing.T, publisher, hearing goredis.UniversalClient) (a, b *listener) {
	t.Helper()
	a, b = listen(publisher), listen(hearing)
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	return a, b
}

func (l *listener) outbox() *outbox { return l.Session.(*link).ways[0].outbox }

// owes waits until the node knows that something it published is lost.
func (l *listener) owes(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		o := l.outbox()
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.owed) > 0
	}, 20*time.Second, time.Millisecond)
}

// fallSilent does to the node's numbers what a minute without a packet does.
func (l *listener) fallSilent() {
	o := l.outbox()
	o.mu.Lock()
	for _, counter := range o.numbers.channels {
		counter.used = counter.used.Add(-2 * forgetAfter)
	}
	o.numbers.sweepAt = time.Time{}
	o.mu.Unlock()
	l.Publish("other", nil)
}

func (l *listener) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return is()
	}, 20*time.Second, 5*time.Millisecond, what)
}

// TestEveryLossIsCounted breaks the way between two nodes, or Redis itself, while one of
// them publishes. What was published either comes, in order and once, or is counted.
func TestEveryLossIsCounted(t *testing.T) {
	type world struct {
		server             *redistest.Server
		publisher, hearing *redistest.Proxy
	}
	for name, tt := range map[string]struct {
		breaks, mends func(*world)
		interrupted   bool // the one who listens was
	}{
		"the listener is cut off":     {func(w *world) { w.hearing.Cut() }, func(w *world) { w.hearing.Restore() }, true},
		"the listener hears nothing":  {func(w *world) { w.hearing.Stall() }, func(w *world) { w.hearing.Restore() }, true},
		"the publisher is cut off":    {func(w *world) { w.publisher.Cut() }, func(w *world) { w.publisher.Restore() }, false},
		"the publisher gets no reply": {func(w *world) { w.publisher.Stall() }, func(w *world) { w.publisher.Restore() }, false},
		"Redis restarts":              {func(w *world) { w.server.Stop() }, func(w *world) { w.server.Restart() }, true},
		"Redis hangs":                 {func(w *world) { w.server.Pause() }, func(w *world) { w.server.Resume() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			w := &world{server, redistest.StartProxy(t, server.Addr), redistest.StartProxy(t, server.Addr)}
			through := func(p *redistest.Proxy) *goredis.Client {
				return server.Client(t, func(o *goredis.Options) { o.Addr = p.Addr })
			}
			a, b := pair(t, through(w.publisher), through(w.hearing))
			published := 0
			publish := func(n int) {
				for range n {
					a.Publish("news", fmt.Appendf(nil, "%d", published))
					published++
					time.Sleep(time.Millisecond) // so that the outage is in their midst
				}
			}
			publish(50)
			b.eventually(t, "the first packets", func() bool { return len(b.received) == 50 })
			tt.breaks(w)
			publish(3000)
			tt.mends(w)
			before := published
			// Who listens may still be about to find out.
			b.eventually(t, "it works again", func() bool {
				a.Publish("news", fmt.Appendf(nil, "%d", published))
				published++
				return len(b.received) > 50 && atLeast(b.received[len(b.received)-1], before)
			})
			b.eventually(t, "everything is accounted for", func() bool { return len(b.received)+b.missed == published })
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := 1; i < len(b.received); i++ {
				require.True(t, atLeast(b.received[i], 1+number(b.received[i-1])), "%q follows %q", b.received[i], b.received[i-1])
			}
			if tt.interrupted {
				assert.Positive(t, b.interrupts)
			}
			t.Logf("%d of %d were lost", b.missed, published)
		})
	}
}

func number(packet string) (n int) {
	_, _ = fmt.Sscan(packet, &n)
	return n
}

func atLeast(packet string, n int) bool { return number(packet) >= n }

// TestNobodyIsBuriedByAnInterruption: nodes that cannot be heard are not down because
// this one is deaf.
func TestNobodyIsBuriedByAnInterruption(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a := listen(server.Client(t))
	b := listen(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))
	defer b.Close()
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	a.Publish("news", []byte("hello"))
	b.eventually(t, "a packet", func() bool { return len(b.received) == 1 })
	proxy.Cut()
	time.Sleep(silentFor + 2*aliveEvery) // what it takes to be silent
	proxy.Restore()
	b.eventually(t, "subscribed again", func() bool { return b.subscribed == 2 })
	time.Sleep(2 * aliveEvery) // in which something wrong could be said
	b.mu.Lock()
	assert.Zero(t, b.down)
	b.mu.Unlock()
	a.Close()
	b.eventually(t, "goodbye", func() bool { return b.down == 1 })
}

// TestTheLastPacketsAreMissedToo, though nothing follows that would show the gap.
func TestTheLastPacketsAreMissedToo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a, b := pair(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	proxy.Cut()
	for range 3 {
		a.Publish("news", []byte("lost"))
	}
	a.owes(t)
	proxy.Restore()
	b.eventually(t, "the loss", func() bool { return len(b.received)+b.missed >= 4 })
}

func TestAnOutboxIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := pair(t, server.Client(t), server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	server.Pause()
	const packets = 100
	for range packets {
		a.Publish("news", make([]byte, 1<<20))
	}
	o := a.outbox()
	o.mu.Lock()
	assert.LessOrEqual(t, o.bytes, maxWaitingBytes)
	o.mu.Unlock()
	server.Resume()
	b.eventually(t, "everything is accounted for", func() bool { return len(b.received)+b.missed == 1+packets })
	assert.Positive(t, b.missed)
}

func TestTheFirstPacketAfterASilence(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a, b := pair(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), server.Client(t))
	a.Publish("news", []byte("0"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	a.fallSilent()
	proxy.Cut()
	a.Publish("news", []byte("1")) // is lost
	time.Sleep(3 * time.Second)    // it is not tried for longer
	proxy.Restore()
	published := 2
	b.eventually(t, "it works again", func() bool {
		a.Publish("news", fmt.Append(nil, published))
		published++
		return len(b.received) > 1
	})
	b.eventually(t, "what is not there was missed", func() bool { return len(b.received)+b.missed == published })
}

// A failing client's publishes fail while it is on.
type failing struct{ on atomic.Bool }

func (*failing) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (*failing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (f *failing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if !f.on.Load() {
			return next(ctx, cmds)
		}
		err := errors.New("max number of clients reached")
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

func TestALossBeforeASilence(t *testing.T) {
	server := redistest.Start(t)
	client, failing := server.Client(t), &failing{}
	client.AddHook(failing)
	a, b := pair(t, client, server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "first", func() bool { return len(b.received) == 1 })
	failing.on.Store(true)
	a.Publish("news", []byte("lost"))
	a.owes(t)
	a.fallSilent()
	failing.on.Store(false)
	b.eventually(t, "it is told of the loss", func() bool { return b.missed > 0 })
	a.Publish("news", []byte("second"))
	b.eventually(t, "second", func() bool { return slices.Contains(b.received, "second") })
}

// TestALossBeforeAnythingWasHeard is of a node that the other has not heard on the topic yet.
func TestALossBeforeAnythingWasHeard(t *testing.T) {
	server := redistest.Start(t)
	client, failing := server.Client(t), &failing{}
	client.AddHook(failing)
	a, b := pair(t, client, server.Client(t))
	failing.on.Store(true)
	a.Publish("news", []byte("lost"))
	a.owes(t)
	failing.on.Store(false)
	a.Publish("news", []byte("heard")) // before the loss is told
	b.eventually(t, "heard", func() bool { return len(b.received) == 1 })
	b.eventually(t, "it is told of the loss", func() bool { return b.missed+b.interrupts > 0 })
}

// TestAClientThatConnectsAgainByItself does so while its node is busy.
func TestAClientThatConnectsAgainByItself(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a := listen(server.Client(t))
	defer a.Close()
	var told, subscribed atomic.Int64
	entered, hold := make(chan struct{}), make(chan struct{})
	b := NewBroker(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })).Connect(broker.Handler{
		Receive: func(_, _ string, packet []byte) {
			if string(packet) == "hold" {
				close(entered)
				<-hold
			}
		},
		Subscribed:   func(string) { subscribed.Add(1) },
		MessagesLost: func(string, int) { told.Add(1) },
		NodeLeft:     func(string) {},
	})
	defer b.Close()
	b.Subscribe("news")
	require.Eventually(t, func() bool { return subscribed.Load() == 1 }, 20*time.Second, time.Millisecond)
	a.Publish("news", []byte("hold"))
	<-entered
	proxy.Cut()
	a.Publish("news", []byte("lost"))
	time.Sleep(300 * time.Millisecond) // the loss must come before the connection
	proxy.Restore()
	for n := range 5 { // writes to the connection that is broken
		b.Subscribe(fmt.Sprint("other ", n))
		time.Sleep(50 * time.Millisecond)
	}
	close(hold)
	require.Eventually(t, func() bool { return told.Load() > 0 }, 20*time.Second, time.Millisecond)
}

// TestANodeThatWasPausedIsAskedAgain has one believe that the other was silent.
func TestANodeThatWasPausedIsAskedAgain(t *testing.T) {
	server := redistest.Start(t)
	a, b := pair(t, server.Client(t), server.Client(t))
	silent, of := a.Session.(*link).name, b.Session.(*link)
	require.Eventually(t, func() bool {
		of.mu.Lock()
		defer of.mu.Unlock()
		if of.heard[silent] == nil || of.heard[of.name] == nil {
			return false
		}
		of.heard[silent].at = of.heard[of.name].at.Add(-2 * silentFor)
		return true
	}, 20*time.Second, time.Millisecond)
	of.buryTheSilent()
	b.eventually(t, "it is down", func() bool { return b.down == 1 })
	b.eventually(t, "it is heard, and asked", func() bool { return b.subscribed == 2 })
}

func TestNothingFollowsAGoodbye(t *testing.T) {
	server := redistest.Start(t)
	b := listen(server.Client(t))
	defer b.Close()
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	const rounds = 40
	var names []string
	for range rounds {
		a := listen(server.Client(t))
		names = append(names, a.Session.(*link).name)
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
		time.Sleep(3 * time.Millisecond) // so that there is something to follow
		a.Close()
		close(stop)
		wg.Wait()
	}
	b.eventually(t, "down", func() bool { return b.down >= rounds })
	of := b.Session.(*link)
	of.mu.Lock()
	defer of.mu.Unlock()
	for _, name := range names {
		assert.NotContains(t, of.heard, name, "it is heard though it has gone")
	}
}

func TestClosingMissesNothing(t *testing.T) {
	a := listen(redistest.Start(t).Client(t))
	a.Subscribe("news")
	a.eventually(t, "subscribed", func() bool { return a.subscribed == 1 })
	a.Close()
	time.Sleep(200 * time.Millisecond) // nothing must come
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Zero(t, a.interrupts)
}
