package guides_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

const keptFor = 2 * time.Minute

// newSessionNode returns a router whose sessions continue on all nodes of the broker. A handler subscribes
// its clients.
func newSessionNode(b broker.Broker) *router.Router {
	r := router.New(&router.Options{Broker: b, Resume: router.ResumeOptions{Within: keptFor}})
	router.Topic(r, "room/{id}", &router.TopicOptions{History: router.History{Messages: 100}})
	router.On(r, func(ctx *router.Context, _ publication) error { return ctx.Subscribe("room/go") })
	return r
}

// session draws how a client moves to another node, after its connection was lost and before it is closed.
func session(t *testing.T) []byte {
	const user, one, two = "client", "node A", "node B"
	defer time.Sleep(time.Minute) // until the routers have ended
	store := memory.NewBroker()
	nodes := map[string]*router.Router{one: newSessionNode(store), two: newSessionNode(store)}
	s := newSequence("A session continues on another node", "A client greets and gets a session with a token. Its connection is lost, and the session is kept. "+
		"The client presents the token to another node, and has its subscriptions and what it has missed. When that node shuts down, it asks the client to move: "+
		"the client resumes the session on another connection before it closes the old one.", user, one, two)
	c := &reader{Conn: routertest.Dial(t, nodes[one]), t: t}
	var welcome protocol.Welcome
	require.NoError(t, json.Unmarshal(c.call(protocol.Hello{Session: true}), &welcome))
	require.EqualValues(t, keptFor.Milliseconds(), welcome.Session.ResumeWithinMs)
	token := welcome.Session.Token
	s.send(user, one, "flow", "$ws:hello, session: true")
	s.send(one, user, "flow", "$ws:welcome, token 1")
	c.Send(publication{})
	at := c.granted()
	s.send(one, user, "flow", fmt.Sprintf("$ws:subscribed room/go, offset %d", at.Offset))
	s.say("", "The subscription of a handler is a grant: it belongs to the session.")
	publishTo(t, nodes[two], &at, c)
	s.send(one, user, "flow", fmt.Sprint("publication ", at.Offset))

	c.Abort()
	s.lose(user, "away")
	missed := at
	publishTo(t, nodes[one], &missed)
	publishTo(t, nodes[two], &missed)
	s.say("bad", fmt.Sprintf("The connection is lost. The store keeps the session for %.0f minutes; offsets %d and %d are published.", keptFor.Minutes(), at.Offset+1, missed.Offset))
	s.restore(user)
	c = &reader{Conn: routertest.Dial(t, nodes[two]), t: t}
	token = c.resume(token, at)
	s.send(user, two, "span", fmt.Sprintf("$ws:resume token 1, room/go, offset %d", at.Offset))
	s.send(two, user, "found", "$ws:resumed token 2, room/go: recovered")
	require.Equal(t, []uint64{at.Offset + 1, missed.Offset}, c.offsets())
	s.send(two, user, "found", fmt.Sprintf("publications %d and %d", at.Offset+1, missed.Offset))

	s.say("bad", "Node B shuts down.")
	ended := make(chan error, 1)
	go func() { ended <- nodes[two].Shutdown(context.Background()) }()
	require.Equal(t, protocol.TypeGoAway, c.Next().Type)
	s.send(two, user, "refused", "$ws:goaway, reconnectAfterMs")
	next := &reader{Conn: routertest.Dial(t, nodes[one]), t: t}
	next.resume(token, missed)
	s.say("good", "The client connects to node A first.")
	s.send(user, one, "span", fmt.Sprintf("$ws:resume token 2, offset %d", missed.Offset))
	s.send(one, user, "found", "$ws:resumed token 3: recovered")
	require.EqualValues(t, 4409, c.Closed().Code)
	require.NoError(t, <-ended)
	s.send(two, user, "refused", "answers of open calls, then close 4409")
	s.lose(two, "")
	publishTo(t, nodes[one], &missed, next)
	s.send(one, user, "flow", fmt.Sprint("publication ", missed.Offset))
	return s.svg()
}

// granted returns the position of the subscription that the server has made.
func (r *reader) granted() (at broker.Position) {
	frame := r.Next()
	require.Equal(r.t, protocol.TypeSubscribed, frame.Type)
	require.NoError(r.t, json.Unmarshal(frame.Payload, &at))
	return at
}

// resume continues a session, and returns its new token.
func (r *reader) resume(token string, at broker.Position) string {
	var answer protocol.Resumed
	payload := r.call(protocol.Resume{Token: token, Topics: []protocol.Subscribe{{Topic: "room/go", Epoch: at.Epoch, Offset: at.Offset}}})
	require.NoError(r.t, json.Unmarshal(payload, &answer))
	require.Len(r.t, answer.Topics, 1)
	require.True(r.t, answer.Topics[0].Recovered)
	require.NotEqual(r.t, token, answer.Session.Token)
	return answer.Session.Token
}

// publishTo publishes the next message, which these clients receive.
func publishTo(t *testing.T, r *router.Router, at *broker.Position, receivers ...*reader) {
	require.NoError(t, r.Publish("room/go", publication{}, router.Stored(t.Context(), at)))
	synctest.Wait()
	for _, c := range receivers {
		require.Equal(t, []uint64{at.Offset}, c.offsets())
	}
}
