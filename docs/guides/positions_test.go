package guides_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type publication struct{}

func (publication) MessageType() string { return "SAID" }

// A reader is a client of a topic, and what it has received.
type reader struct {
	*routertest.Conn

	t     *testing.T
	calls int
}

func newHistoryRouter(b broker.Broker) *router.Router {
	r := router.New(&router.Options{Broker: b})
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 100},
	})
	return r
}

// call sends a message of the protocol, and returns the payload of the answer.
func (r *reader) call(message protocol.Message) []byte {
	r.calls++
	payload, err := json.Marshal(message)
	require.NoError(r.t, err)
	r.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":"%d"},"payload":%s}`, message.MessageType(), r.calls, payload))
	for {
		frame := r.Next()
		if frame.Meta.CorrelationID == fmt.Sprint(r.calls) {
			require.NotEqual(r.t, "RPC_ERROR", frame.Type, frame.Text)
			return frame.Payload
		}
	}
}

// subscribe presents a position, or asks for positions if it is nil.
func (r *reader) subscribe(since *broker.Position) (answer protocol.Subscribed) {
	m := protocol.Subscribe{Topic: "room/go", Positions: true}
	if since != nil {
		m.Epoch, m.Offset = since.Epoch, since.Offset
	}
	require.NoError(r.t, json.Unmarshal(r.call(m), &answer))
	return answer
}

// offsets returns those of the publications that have arrived since the last call.
func (r *reader) offsets() (offsets []uint64) {
	synctest.Wait()
	for r.Pending() > 0 {
		frame := r.Next()
		var m struct{ Meta struct{ Offset uint64 } }
		require.NoError(r.t, json.Unmarshal([]byte(frame.Text), &m))
		offsets = append(offsets, m.Meta.Offset)
	}
	return offsets
}

// positions draws what two clients of a topic with a history receive. One of them loses its connection.
func positions(t *testing.T) []byte {
	const ann, topic, bob = "Ann", "room/go", "Bob"
	r := newHistoryRouter(memory.NewBroker())
	stays, leaves := &reader{Conn: routertest.Dial(t, r), t: t}, &reader{Conn: routertest.Dial(t, r), t: t}
	at := broker.Position{Epoch: stays.subscribe(nil).Epoch}
	leaves.subscribe(nil)
	s := newSequence("A client receives what it has missed", "Publications of a topic have offsets in an epoch. A client that loses its connection "+
		"presents its position when it returns, and receives what it has missed, once and in order. If the history was lost, the epoch is another one, and the client is informed of the loss.",
		ann, topic, bob)
	connected := true
	publish := func() {
		var stored broker.Position
		require.NoError(t, r.Publish("room/go", publication{}, router.Stored(t.Context(), &stored)))
		require.Equal(t, []uint64{stored.Offset}, stays.offsets())
		receivers := []string{ann}
		if connected {
			require.Equal(t, []uint64{stored.Offset}, leaves.offsets())
			receivers = append(receivers, bob)
			at.Offset = stored.Offset
		}
		s.publish(topic, fmt.Sprint(stored.Offset), "flow", receivers...)
	}
	s.say("", "Epoch A: every publication has the next offset.")
	publish()
	publish()
	leaves.Abort()
	connected = false
	s.say("bad", "Bob loses his connection after offset 2.")
	s.lose(bob, "away")
	publish()
	publish()
	leaves = &reader{Conn: routertest.Dial(t, r), t: t}
	answer := leaves.subscribe(&at)
	require.True(t, answer.Recovered)
	s.restore(bob)
	s.send(bob, topic, "span", "subscribe: epoch A, offset 2")
	for _, offset := range leaves.offsets() {
		s.publish(topic, fmt.Sprint(offset), "found", bob)
		at.Offset = offset
	}
	require.EqualValues(t, 4, at.Offset)
	s.say("good", "He receives what he has missed: once, and in order.")
	connected = true
	publish()

	r = newHistoryRouter(memory.NewBroker())
	s.say("bad", "The history is lost: its store was restarted without its data. Epoch B begins.")
	stays, leaves = &reader{Conn: routertest.Dial(t, r), t: t}, &reader{Conn: routertest.Dial(t, r), t: t}
	for _, c := range []*reader{stays, leaves} {
		answer = c.subscribe(&at)
		assert.False(t, answer.Recovered)
		assert.NotEqual(t, at.Epoch, answer.Epoch)
		c.offsets()
	}
	s.send(bob, topic, "span", "subscribe: epoch A, offset 5")
	s.send(topic, bob, "refused", "recovered: false, epoch B")
	s.say("bad", "The loss is reported: Bob loads the state again.")
	publish()
	return s.svg()
}

// publish draws a publication with its offset, and its way to clients.
func (s *sequence) publish(topic, offset, class string, to ...string) {
	s.y += 14 * px
	c := s.column(topic)
	c.hidden = append(c.hidden, [2]int{s.y - 90, s.y + 90})
	path(&s.front, "edge", "M%d,%dh240v180h-240z", c.x-120, s.y-90)
	s.text(c.x, s.y+5*px, "mid", "%s", offset)
	for _, name := range to {
		if end := s.column(name).x; end < c.x {
			s.arrow(class, c.x-16*px, s.y, end+4*px, s.y)
		} else {
			s.arrow(class, c.x+16*px, s.y, end-4*px, s.y)
		}
	}
	s.y += 14 * px
}
