package topic

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/memstore"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/tracing"
)

type entry struct{ N int }

func (entry) MessageType() string { return "ENTRY" }

// An ownTest is a node that publishes on the topic "log", with a store whose answers it delays.
type ownTest struct {
	*memstore.Node

	t       *testing.T
	topics  Topics
	formats envelope.Formats
	topic   *Topic
	held    chan struct{}                                  // while it is open, the store passes nothing on
	answer  func(broker.Appended) (broker.Appended, error) // what Append returns
	kept    map[int]*byte                                  // the first bytes of what was encoded, by message

	delivered []bool // by message: with what was encoded
}

func newOwnTest(t *testing.T) *ownTest {
	o := &ownTest{t: t, kept: map[int]*byte{}}
	o.topics.Init(Config{Formats: &o.formats, Delivered: func(int, time.Duration) {}, Lost: func(string, int) {}})
	segments, err := topicname.Parse("log")
	require.NoError(t, err)
	o.topics.Declare("log", "", segments, Options{Retention: broker.Retention{Messages: 10}})
	o.Node = new(memstore.Hub).Connect(broker.HistoryCallbacks{
		Published: func(name string, p broker.Publication) {
			if o.held != nil {
				<-o.held
			}
			o.topics.published(name, p)
		},
		Following: o.topics.following,
	})
	o.topics.Connect(silentNode{}, o)
	o.topics.ObserveDeliveries(func(d host.Delivery) {
		o.delivered = append(o.delivered, o.kept[int(d.Offset)] == &d.Message[0])
	})
	o.topic = o.topics.listen("log")
	synctest.Wait()
	return o
}

func (o *ownTest) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	stored, err := o.Node.Append(ctx, a)
	if err == nil && o.answer != nil {
		return o.answer(stored)
	}
	return stored, err
}

// publish stores the message with an offset.
func (o *ownTest) publish(offset int, key string) error {
	message, err := o.formats.Encode(entry{offset}, envelope.OnlyJSON)
	require.NoError(o.t, err)
	frame := message.Frame(envelope.JSON)
	frame.Retain() // or it would be used again for what is parsed
	o.kept[offset] = &frame.Text()[0]
	packet := o.formats.Packet(&message, tracing.TraceContext{})
	_, err = o.topics.Store(o.t.Context(), broker.Append{Topic: "log", Packet: packet, IdempotencyKey: key}, message)
	return err
}

// TestOwn_IsNotParsed publishes on a node that follows the topic, with a store that confirms and passes on in
// every order.
func TestOwn_IsNotParsed(t *testing.T) {
	unknown := errors.Errorf(errors.OutcomeUnknown, "no replica has confirmed it")
	for name, publish := range map[string]func(o *ownTest) (delivered []bool){
		"confirmed first": func(o *ownTest) []bool {
			o.held = make(chan struct{})
			defer close(o.held)
			require.NoError(o.t, o.publish(1, ""))
			require.NoError(o.t, o.publish(2, ""))
			return []bool{true, true}
		},
		"passed on first": func(o *ownTest) []bool {
			o.answer = func(a broker.Appended) (broker.Appended, error) { synctest.Wait(); return a, nil }
			require.NoError(o.t, o.publish(1, ""))
			return []bool{true}
		},
		"confirmed in another order": func(o *ownTest) []bool {
			o.held = make(chan struct{})
			defer close(o.held)
			first := make(chan struct{})
			o.answer = func(a broker.Appended) (broker.Appended, error) {
				if a.Position.Offset == 1 {
					<-first
				}
				return a, nil
			}
			go func() { assert.NoError(o.t, o.publish(1, "")) }()
			synctest.Wait()
			require.NoError(o.t, o.publish(2, ""))
			require.Empty(o.t, o.delivered)
			close(first)
			synctest.Wait()
			return []bool{true, true}
		},
		"passed on, and not confirmed": func(o *ownTest) []bool {
			o.answer = func(broker.Appended) (broker.Appended, error) { synctest.Wait(); return broker.Appended{}, unknown }
			require.ErrorIs(o.t, o.publish(1, ""), unknown)
			return []bool{true}
		},
		"not confirmed, and passed on": func(o *ownTest) []bool {
			o.answer = func(broker.Appended) (broker.Appended, error) { return broker.Appended{}, unknown }
			o.held = make(chan struct{})
			require.ErrorIs(o.t, o.publish(1, ""), unknown)
			close(o.held)
			return []bool{false}
		},
		"a duplicate": func(o *ownTest) []bool {
			require.NoError(o.t, o.publish(1, "k"))
			require.NoError(o.t, o.publish(2, "k"))
			return []bool{true}
		},
		"of another node": func(o *ownTest) []bool {
			message, err := o.formats.Encode(entry{1}, envelope.OnlyJSON)
			require.NoError(o.t, err)
			_, err = o.Node.Append(o.t.Context(), broker.Append{Topic: "log", Packet: o.formats.Packet(&message, tracing.TraceContext{})})
			require.NoError(o.t, err)
			return []bool{false}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOwnTest(t)
				defer o.topics.Remove(o.topic, nil, true)
				want := publish(o)
				synctest.Wait()
				assert.Equal(t, want, o.delivered)
				assert.Empty(t, o.topic.history.own.waiting)
			})
		})
	}
}

// TestOwn_IsForgottenAtALoss loses what waits in the sequencer for a publication that precedes it.
func TestOwn_IsForgottenAtALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnTest(t)
		defer o.topics.Remove(o.topic, nil, true)
		o.held = make(chan struct{})
		defer close(o.held)
		o.answer = func(a broker.Appended) (broker.Appended, error) {
			a.Position.Offset++
			return a, nil
		}
		require.NoError(t, o.publish(2, ""))
		require.Len(t, o.topic.history.own.waiting, 1)
		o.topics.lose(o.topic, sequencer.Loss{Reset: true})
		assert.Empty(t, o.topic.history.own.waiting)
	})
}
