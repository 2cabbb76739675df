package runs

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A refusingNode refuses some reads, with an error that is not temporary.
type refusingNode struct {
	broker.HistoryNode
	refuse atomic.Int32
}

func (n *refusingNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	if n.refuse.Add(-1) >= 0 {
		return broker.Page{}, errors.Errorf(errors.FailedPrecondition, "not now")
	}
	return n.HistoryNode.Read(ctx, q)
}

// A viewTest is a view of a run whose log its node may not receive.
type viewTest struct {
	*view

	t     *testing.T
	node  *refusingNode
	added int
	deaf  bool
}

func newViewTest(t *testing.T) *viewTest {
	vt := &viewTest{t: t, node: &refusingNode{}}
	var s *sequencer.Sequencer
	vt.node.HistoryNode = memory.NewBroker().ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{
		Published: func(_ string, p broker.Publication) {
			if !vt.deaf {
				s.Publish(p)
			}
		},
	})
	r := New(Config{
		Host: host.Host{
			Histories: vt.node, OnShutdown: func(host.Shutdown) {},
			Follow: func(topic string, r broker.Retention, sink sequencer.Sink) *sequencer.Sequencer {
				s = sequencer.New(sequencer.NewReader(vt.node), topic, r, sink)
				s.Following()
				return s
			},
			Unfollow: func(string) { s.Close() },
		},
		MaxItems: 10, Retain: time.Hour,
		Decode: func(raw json.RawMessage) (any, error) { return string(raw), nil },
	})
	vt.view = r.acquire("topic", "id", true)
	vt.load(true)
	return vt
}

// add appends the next item to the log.
func (vt *viewTest) add() broker.Publication {
	a := broker.Append{Topic: logTopic("topic", "id"), Retention: vt.runs.retention()}
	a.Packet = encode(entry{First: uint64(vt.added), Items: []json.RawMessage{json.RawMessage(strconv.Itoa(vt.added))}})
	stored, err := vt.node.Append(vt.t.Context(), a)
	require.NoError(vt.t, err)
	vt.added++
	synctest.Wait()
	return broker.Publication{Position: stored.Position, Packet: a.Packet}
}

// hasAll checks that the view has every item, and knows that.
func (vt *viewTest) hasAll(message string) {
	synctest.Wait()
	vt.mu.Lock()
	defer vt.mu.Unlock()
	assert.True(vt.t, vt.cursor.IsLive(), message)
	assert.Len(vt.t, vt.state.items, vt.added, message)
}

func TestView_ReadsWhatItHasNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vt := newViewTest(t)
		defer func() {
			vt.release(true)
			require.NoError(t, vt.node.Close(context.Background()))
		}()
		vt.add()
		vt.add()
		vt.hasAll("published")
		vt.deaf = true
		vt.add()
		vt.deliver(vt.add())
		vt.hasAll("one is missing before another")
		vt.add()
		vt.lose(sequencer.Loss{Reset: true})
		vt.hasAll("the sequencer reports a loss")
		vt.add()
		vt.node.refuse.Store(2)
		vt.lose(sequencer.Loss{Reset: true})
		time.Sleep(3 * watchInterval)
		vt.hasAll("the store has refused two reads")
	})
}
