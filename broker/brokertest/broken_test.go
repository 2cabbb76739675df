package brokertest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// A defect changes the calls of a handler, or of a node. A nil function changes nothing.
type defect struct {
	handler func(*broker.Callbacks)
	node    func(broker.Node) broker.Node
	begin   func(*broker.Callbacks) // called when a fault begins
}

// A brokenNode has a defect.
type brokenNode struct {
	broker.Node
	inner   *cluster.Node
	handler *broker.Callbacks
}

// everyNth returns a function that returns true at each nth call.
func everyNth(n int) func() bool {
	var mu sync.Mutex
	calls := 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return calls%n == 0
	}
}

// check runs a case against a correct broker with a defect.
func check(c brokertest.Case, d *defect) error {
	network := enginetest.New()
	fault := func(name string, change func(*enginetest.Faults)) brokertest.Fault {
		return brokertest.Fault{Name: name, Duration: 10 * time.Second, Begin: func(s broker.Node) func() {
			b := s.(*brokenNode)
			if d.begin != nil {
				d.begin(b.handler)
			}
			network.Update(b.inner.Name(), change)
			return func() { network.Update(b.inner.Name(), func(f *enginetest.Faults) { *f = enginetest.Faults{} }) }
		}}
	}
	return c.Check(brokertest.Cluster{
		Connect: func(h broker.Callbacks) broker.Node {
			if d.handler != nil {
				d.handler(&h)
			}
			b := &brokenNode{handler: &h}
			b.inner = cluster.New(network).Connect(h).(*cluster.Node)
			b.Node = b.inner
			if d.node != nil {
				b.Node = d.node(b.inner)
			}
			return b
		},
		Kill: func(s broker.Node) { s.(*brokenNode).inner.Kill() },
		Faults: []brokertest.Fault{
			fault("interruption", func(f *enginetest.Faults) { f.Disconnect = true }),
			fault("failing publish", func(f *enginetest.Faults) { f.FailPublish = true }),
		},
		Timeout:     20 * time.Second,
		QuietPeriod: 3 * time.Second,
	})
}

// checkIn runs a case in a bubble.
func checkIn(t *testing.T, c brokertest.Case, d *defect) (err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		err = check(c, d)
		time.Sleep(time.Minute) // for nodes that a failed case did not close
	})
	return err
}

// TestCases_FailBrokenBroker proves that the suite detects each kind of defect.
func TestCases_FailBrokenBroker(t *testing.T) {
	cases := map[string]brokertest.Case{}
	for _, c := range brokertest.Cases() {
		cases[c.Name] = c
		require.NoError(t, checkIn(t, c, &defect{}), c.Name)
	}
	for name, tt := range map[string]struct {
		defect
		want string // a case that must fail
	}{
		"never reports a loss": {defect{handler: func(h *broker.Callbacks) {
			h.MessagesLost = func(string, int) {}
		}}, "loss is reported"},
		"reports losses when they begin": {defect{
			handler: func(h *broker.Callbacks) {
				report, enabled := h.MessagesLost, false
				h.MessagesLost = func(topic string, packets int) {
					if packets < 0 {
						enabled = true
					}
					if enabled {
						report(topic, 0)
					}
					enabled = false
				}
			},
			begin: func(h *broker.Callbacks) {
				for _, topic := range []string{"topic 0", "topic 1", "topic 2"} {
					h.MessagesLost(topic, -1)
				}
			},
		}, "loss is reported"},
		"loses a packet": {defect{handler: func(h *broker.Callbacks) {
			receive, lose := h.Receive, everyNth(100)
			h.Receive = func(topic, from string, packet []byte) {
				if !lose() {
					receive(topic, from, packet)
				}
			}
		}}, "loss is reported"},
		"duplicates a packet": {defect{handler: func(h *broker.Callbacks) {
			receive, again := h.Receive, everyNth(100)
			h.Receive = func(topic, from string, packet []byte) {
				receive(topic, from, packet)
				if again() {
					receive(topic, from, packet)
				}
			}
		}}, "loss is reported"},
		"reorders packets": {defect{handler: func(h *broker.Callbacks) {
			receive, hold := h.Receive, everyNth(20)
			var held []func()
			h.Receive = func(topic, from string, packet []byte) {
				if hold() {
					held = append(held, func() { receive(topic, from, packet) })
					return
				}
				receive(topic, from, packet)
				if len(held) > 0 {
					held[0]()
					held = held[1:]
				}
			}
		}}, "order"},
		"keeps failed nodes": {defect{handler: func(h *broker.Callbacks) {
			h.NodeLeft = func(string) {}
		}}, "crash"},
		"keeps a node that failed after a fault": {defect{handler: func(h *broker.Callbacks) {
			left, first := h.NodeLeft, sync.Once{}
			h.NodeLeft = func(node string) { first.Do(func() { left(node) }) }
		}}, "loss is reported"},
		"reports a node twice": {defect{handler: func(h *broker.Callbacks) {
			left := h.NodeLeft
			h.NodeLeft = func(node string) { left(node); left(node) }
		}}, "close"},
		"knows no other nodes": {defect{node: func(s broker.Node) broker.Node {
			return lonelyNode{s}
		}}, "nodes"},
		"remembers nodes that have left": {defect{node: func(s broker.Node) broker.Node {
			return &nostalgicNode{Node: s}
		}}, "nodes"},
		"discards what waits at Close": {defect{node: func(s broker.Node) broker.Node {
			return hastyNode{s}
		}}, "close sends everything"},
		"calls the handler after Close": {defect{handler: func(h *broker.Callbacks) {
			receive, first := h.Receive, true
			h.Receive = func(topic, from string, packet []byte) {
				if first {
					first = false
					receive(topic, from, packet)
					return
				}
				packet = append([]byte(nil), packet...)
				time.AfterFunc(time.Second, func() { receive(topic, from, packet) })
			}
		}}, "nothing follows close"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Error(t, checkIn(t, cases[tt.want], &tt.defect))
		})
	}
}

// A hastyNode does not wait for packets to be sent when it is closed, and hides that.
type hastyNode struct{ broker.Node }

func (s hastyNode) Publish(topic string, packet []byte) error {
	time.AfterFunc(time.Millisecond, func() { _ = s.Node.Publish(topic, packet) })
	return nil
}

func (s hastyNode) Close(ctx context.Context) error {
	_ = s.Node.Close(ctx)
	return nil
}

// A lonelyNode knows no other nodes.
type lonelyNode struct{ broker.Node }

func (lonelyNode) Nodes() (others []string, all bool) { return nil, true }

// A nostalgicNode knows the most nodes that there have been.
type nostalgicNode struct {
	broker.Node

	most []string
}

func (s *nostalgicNode) Nodes() (others []string, all bool) {
	others, all = s.Node.Nodes()
	if len(others) > len(s.most) {
		s.most = others
	}
	return s.most, all
}
