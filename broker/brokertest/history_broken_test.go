package brokertest_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
)

// An override has functions in place of the methods of a node.
type override struct {
	broker.HistoryNode
	append func(context.Context, broker.Append) (broker.Appended, error)
	read   func(context.Context, broker.Query) (broker.Page, error)
	batch  func(context.Context, broker.Batch) ([]broker.BatchPage, error)
	state  func(context.Context, broker.StateQuery) (broker.StatePart, error)
	follow func(topic string)
	end    func(topic string)
	close  func(context.Context) error
	load   func(ctx context.Context, key string) (broker.Value, error)
	store  func(context.Context, storeCall) (newVersion uint64, err error)
	patch  func(context.Context, patchCall) (newVersion uint64, err error)
}

// newOverride returns an override that changes nothing yet.
func newOverride(n broker.HistoryNode) *override {
	o := &override{
		HistoryNode: n, append: n.Append, read: n.Read, batch: n.ReadAll, state: n.ReadState,
		follow: n.Follow, end: n.Unfollow, close: n.Close, load: n.LoadValue,
		patch: func(ctx context.Context, c patchCall) (uint64, error) {
			return n.PatchValue(ctx, c.key, c.patch, c.version, c.lifetime)
		},
	}
	o.store = o.storeValue
	return o
}

func (o *override) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	return o.append(ctx, a)
}

func (o *override) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	return o.read(ctx, q)
}

func (o *override) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	return o.batch(ctx, b)
}

func (o *override) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	return o.state(ctx, q)
}

func (o *override) Follow(topic string)             { o.follow(topic) }
func (o *override) Unfollow(topic string)           { o.end(topic) }
func (o *override) Close(ctx context.Context) error { return o.close(ctx) }

func (o *override) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	return o.load(ctx, key)
}

func (o *override) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return o.store(ctx, storeCall{key, data, version, lifetime})
}

func (o *override) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return o.patch(ctx, patchCall{key, p, version, lifetime})
}

// A historyNetwork lies between a node and the store. During a fault, publications and values are
// lost on their way to the store, or their results on the way back, and publications are not
// delivered.
type historyNetwork struct {
	mu       sync.Mutex
	down     bool
	writes   int
	followed map[string]bool
}

func (n *historyNetwork) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// write reports whether a call reaches the store, and with which error it fails during a fault.
func (n *historyNetwork) write() (reached bool, failure error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.down {
		return true, nil
	}
	number := n.writes % 4
	n.writes++
	if number == 3 {
		return false, errors.Errorf(errors.Unavailable, "cannot connect")
	}
	return number < 2, errors.Errorf(errors.OutcomeUnknown, "connection lost")
}

func (n *historyNetwork) wrap(s broker.HistoryNode) *override {
	o := newOverride(s)
	o.append = func(ctx context.Context, a broker.Append) (result broker.Appended, err error) {
		reached, failure := n.write()
		if reached {
			result, err = s.Append(ctx, a)
		}
		if failure != nil {
			return broker.Appended{}, failure
		}
		return result, err
	}
	o.store = func(ctx context.Context, c storeCall) (version uint64, err error) {
		reached, failure := n.write()
		if reached {
			version, err = s.StoreValue(ctx, c.key, c.data, c.version, c.lifetime)
		}
		if failure != nil {
			return 0, failure
		}
		return version, err
	}
	o.load = func(ctx context.Context, key string) (broker.Value, error) {
		if n.isDown() {
			return broker.Value{}, errors.Errorf(errors.Unavailable, "cannot connect")
		}
		return s.LoadValue(ctx, key)
	}
	o.batch = func(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
		if n.isDown() {
			return nil, errors.Errorf(errors.Unavailable, "cannot connect")
		}
		return s.ReadAll(ctx, b)
	}
	o.follow = func(topic string) {
		n.mu.Lock()
		n.followed[topic] = true
		n.mu.Unlock()
		s.Follow(topic)
	}
	return o
}

// A historyDefect changes a handler or a node of a correct broker.
type historyDefect struct {
	handler func(*broker.HistoryCallbacks)
	node    func(*override)
}

// checkHistory runs a case against a correct broker with a defect, in a bubble.
func checkHistory(t *testing.T, c brokertest.HistoryCase, d historyDefect) (err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		b := memory.NewBroker()
		networks := map[broker.Node]func() (end func()){}
		err = c.Check(brokertest.HistoryCluster{
			Connect: func(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
				if d.handler != nil {
					d.handler(&hh)
				}
				n := &historyNetwork{followed: map[string]bool{}}
				inner := hh
				inner.Published = func(topic string, p broker.Publication) {
					if !n.isDown() {
						hh.Published(topic, p)
					}
				}
				o := newOverride(n.wrap(b.ConnectHistory(h, inner)))
				if d.node != nil {
					d.node(o)
				}
				networks[o] = func() func() {
					n.mu.Lock()
					defer n.mu.Unlock()
					n.down = true
					return func() {
						n.mu.Lock()
						defer n.mu.Unlock()
						n.down = false
						for topic := range n.followed {
							hh.Following(topic)
						}
					}
				}
				return o
			},
			Faults: []brokertest.Fault{{
				Name: "interruption", Duration: time.Second, Begin: func(s broker.Node) func() { return networks[s]() },
			}},
			Timeout: 20 * time.Second, QuietPeriod: time.Second, Age: time.Minute, IdempotencyTime: broker.IdempotencyTime, MetadataAge: 24 * time.Hour,
		})
		time.Sleep(time.Minute) // for nodes that a failed case did not close
	})
	return err
}

// mapOffsets changes every offset that a node returns or publishes.
func mapOffsets(change func(uint64) uint64) historyDefect {
	return historyDefect{
		handler: func(h *broker.HistoryCallbacks) {
			published := h.Published
			h.Published = func(topic string, p broker.Publication) {
				p.Position.Offset = change(p.Position.Offset)
				published(topic, p)
			}
		},
		node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				result, err := o.HistoryNode.Append(ctx, a)
				result.Position.Offset = change(result.Position.Offset)
				return result, err
			}
			changePage(o, func(_ broker.Query, page *broker.Page) {
				page.Position.Offset = change(page.Position.Offset)
				for i := range page.Publications {
					page.Publications[i].Position.Offset = change(page.Publications[i].Position.Offset)
				}
			})
		},
	}
}

// changeAppend changes the arguments of Append.
func changeAppend(change func(*broker.Append)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
			change(&a)
			return o.HistoryNode.Append(ctx, a)
		}
	}}
}

// changeQuery changes the arguments of Read.
func changeQuery(change func(*broker.Query)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.read = func(ctx context.Context, q broker.Query) (broker.Page, error) {
			change(&q)
			return o.HistoryNode.Read(ctx, q)
		}
	}}
}

// changePage changes the results of Read.
func changePage(o *override, change func(broker.Query, *broker.Page)) {
	o.read = func(ctx context.Context, q broker.Query) (broker.Page, error) {
		page, err := o.HistoryNode.Read(ctx, q)
		if err == nil {
			change(q, &page)
		}
		return page, err
	}
}

func pageDefect(change func(broker.Query, *broker.Page)) historyDefect {
	return historyDefect{node: func(o *override) { changePage(o, change) }}
}

// changeStateQuery changes the queries of ReadState.
func changeStateQuery(change func(*broker.StateQuery)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
			change(&q)
			return o.HistoryNode.ReadState(ctx, q)
		}
	}}
}

// changeState changes the results of ReadState.
func changeState(change func(o *override, q broker.StateQuery, s *broker.StatePart)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
			s, err := o.HistoryNode.ReadState(ctx, q)
			if err == nil {
				change(o, q, &s)
			}
			return s, err
		}
	}}
}

// deliver replaces HistoryHandler.Published.
func deliver(replace func(next func(string, broker.Publication)) func(string, broker.Publication)) historyDefect {
	return historyDefect{handler: func(h *broker.HistoryCallbacks) { h.Published = replace(h.Published) }}
}

// history returns everything that is stored.
func (o *override) history(topic string) []broker.Publication {
	page, _ := o.HistoryNode.Read(context.Background(), broker.Query{
		Topic: topic, Retention: broker.Retention{Messages: 1 << 20, Age: 100 * time.Hour}, Limit: 1 << 20,
	})
	return page.Publications
}

// TestHistoryCases_FailBrokenBroker proves that the suite detects each kind of defect.
func TestHistoryCases_FailBrokenBroker(t *testing.T) {
	cases := map[string]brokertest.HistoryCase{}
	for _, c := range brokertest.HistoryCases() {
		require.NotContains(t, cases, c.Name)
		cases[c.Name] = c
		require.NoError(t, checkHistory(t, c, historyDefect{}), c.Name)
	}
	failed := map[string]bool{}
	for name, tt := range brokenHistories() {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, cases, tt.want)
			assert.Error(t, checkHistory(t, cases[tt.want], tt.historyDefect), tt.want)
		})
		failed[tt.want] = true
	}
	for name := range cases {
		assert.True(t, failed[name], "no defect is detected by %q", name)
	}
}

type brokenHistory struct {
	historyDefect
	want string // a case that must fail
}

func brokenHistories() map[string]brokenHistory {
	all := map[string]brokenHistory{}
	for _, some := range []map[string]brokenHistory{brokenPositions(), brokenKeys(), brokenRetentions(), brokenReads(), brokenBatches(), brokenFences(), brokenStates(), brokenFollowers(), brokenOutcomes(), brokenValues(), brokenValueOutcomes()} {
		maps.Copy(all, some)
	}
	return all
}
