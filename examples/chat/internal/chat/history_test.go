package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router/routertest"
)

func textsOf(messages []Said) (texts []string) {
	for _, said := range messages {
		texts = append(texts, said.Text)
	}
	return texts
}

func textsFrom(first, last int) (texts []string) {
	for n := first; n <= last; n++ {
		texts = append(texts, fmt.Sprint("message ", n))
	}
	return texts
}

// say publishes messages first to last.
func say(conn *routertest.Conn, first, last int) {
	for _, text := range textsFrom(first, last) {
		routertest.Call[Stored](conn, Say{Room: "go", Text: text})
	}
	synctest.Wait()
}

// A published is a SAID message as a member receives it.
type published struct {
	Meta    struct{ Offset uint64 }
	Payload Said
}

// receivedSaid returns the SAID messages that wait to be read.
func receivedSaid(t *testing.T, conn *routertest.Conn) (all []published) {
	t.Helper()
	for conn.Pending() > 0 {
		if frame := conn.Next(); frame.Type == "SAID" {
			all = append(all, parsePublished(t, frame))
		}
	}
	return all
}

// requireAdjacent checks that a member has received the messages after an offset, up to another one.
func requireAdjacent(t *testing.T, all []published, after, last uint64) {
	t.Helper()
	require.Len(t, all, int(last-after))
	for i, m := range all {
		require.Equal(t, after+1+uint64(i), m.Meta.Offset)
		require.Equal(t, fmt.Sprint("message ", m.Meta.Offset), m.Payload.Text)
	}
}

func parsePublished(t *testing.T, frame routertest.Frame) (m published) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(frame.Text), &m))
	return m
}

func TestHistory_NewMemberReceivesLatest50Of100Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t, "-capacity=1000")
		ann, bob := routertest.Dial(t, chat, withToken("ann")), routertest.Dial(t, chat, withToken("bob"))
		routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"})
		say(ann, 1, 150)
		joined := routertest.Call[RoomJoined](bob, JoinRoom{Room: "go"})
		assert.Equal(t, textsFrom(101, 150), textsOf(joined.History))
		assert.Equal(t, uint64(150), joined.Offset)
		assert.False(t, joined.Lost)
		assert.Equal(t, textsFrom(51, 150), textsOf(routertest.Call[HistoryFound](bob, SearchHistory{"go", "MESSAGE"}).Matches))

		time.Sleep(24*time.Hour + time.Second)
		assert.Empty(t, routertest.Call[HistoryFound](bob, SearchHistory{"go", "message"}).Matches)
	})
}

// dialGreeting connects a client that greets: every SAID message that it receives has an offset.
func dialGreeting(t *testing.T, chat http.Handler, token string) *routertest.Conn {
	conn := routertest.Dial(t, chat, withToken(token))
	conn.SendText(`{"type":"$ws:hello"}`)
	require.Equal(t, "$ws:welcome", conn.Next().Type)
	return conn
}

func TestHistory_ReturningMemberReceivesWhatItHasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t, "-capacity=1000")
		ann, bob := dialGreeting(t, chat, "ann"), dialGreeting(t, chat, "bob")
		routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"})
		position := routertest.Call[RoomJoined](bob, JoinRoom{Room: "go"}).Position
		say(ann, 1, 10)
		requireAdjacent(t, receivedSaid(t, bob), 0, 10)
		position.Offset = 10
		bob.Abort()
		say(ann, 11, 30)

		bob = routertest.Dial(t, chat, withToken("bob")) // a client that presents a position receives offsets
		bob.Send(JoinRoom{"go", position})
		say(ann, 31, 40)
		received := receivedSaid(t, bob)
		requireAdjacent(t, received, 10, 40)
		joined := routertest.Call[RoomJoined](bob, JoinRoom{"go", Position{position.Epoch, 40}})
		assert.Equal(t, RoomJoined{Room: "go", Users: []string{"ann", "bob"}, Position: Position{position.Epoch, 40}}, joined)
	})
}

func TestHistory_MemberThatMissedTooMuchLearnsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t, "-capacity=1000")
		ann, bob := dialGreeting(t, chat, "ann"), dialGreeting(t, chat, "bob")
		routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"})
		position := routertest.Call[RoomJoined](bob, JoinRoom{Room: "go"}).Position
		bob.Abort()
		say(ann, 1, 101)
		for _, since := range []Position{position, {"another epoch", 101}} {
			bob = dialGreeting(t, chat, "bob")
			joined := routertest.Call[RoomJoined](bob, JoinRoom{"go", since})
			assert.True(t, joined.Lost)
			assert.Equal(t, Position{position.Epoch, 101}, joined.Position)
			assert.Equal(t, textsFrom(52, 101), textsOf(joined.History))
		}
		say(ann, 102, 103)
		requireAdjacent(t, receivedSaid(t, bob), 101, 103)
	})
}

func TestSay_RepeatedMessageIsPublishedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newChat(t)
		ann, bob := routertest.Dial(t, chat, withToken("ann")), routertest.Dial(t, chat, withToken("bob"))
		guest := routertest.Dial(t, chat, routertest.RemoteAddr("192.0.2.1:1"))
		otherGuest := routertest.Dial(t, chat, routertest.RemoteAddr("192.0.2.2:1"))
		for _, conn := range []*routertest.Conn{ann, bob, guest, otherGuest} {
			routertest.Call[RoomJoined](conn, JoinRoom{Room: "go"})
		}
		for _, conn := range []*routertest.Conn{ann, bob, guest, otherGuest, ann, guest} {
			conn.Send(Say{Room: "go", Text: "hi", ID: "1"})
			synctest.Wait()
		}
		ann.Send(Say{Room: "go", Text: "hi", ID: "2"})
		ann.Send(Say{Room: "go", Text: "hi"})
		ann.Send(Say{Room: "go", Text: "hi"})
		synctest.Wait()
		var ids []string
		for _, m := range receivedSaid(t, bob) {
			ids = append(ids, m.Payload.ID)
		}
		require.Len(t, ids, 7)
		assert.Equal(t, []string{"1", "1", "1", "1", "2"}, ids[:5], "the users do not suppress each other's messages")
	})
}

// A slowBroker waits with reads of the messages that a member is shown, while isSlow is set, until their context is done.
type slowBroker struct {
	*memory.Broker
	isSlow atomic.Bool
}

func (b *slowBroker) ConnectHistory(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
	return slowSession{b.Broker.ConnectHistory(handler, history), b}
}

type slowSession struct {
	broker.HistoryNode
	broker *slowBroker
}

func (s slowSession) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	if s.broker.isSlow.Load() && q.Limit == shownMessages {
		<-ctx.Done()
	}
	return s.HistoryNode.Read(ctx, q)
}

func TestJoin_IsAnsweredWhileHistoryCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, slow := newConfig(t), &slowBroker{Broker: memory.NewBroker()}
		cfg.broker = slow
		slow.isSlow.Store(true)
		ann := routertest.Dial(t, newServer(cfg).router, withToken("ann"))
		started := time.Now()
		assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(ann, JoinRoom{Room: "go"}).Code)
		assert.Equal(t, storeTimeout, time.Since(started))
		assert.Equal(t, errors.FailedPrecondition, routertest.CallError(ann, Say{Room: "go", Text: "hi"}).Code, "ann is no member")
		slow.isSlow.Store(false)
		assert.Equal(t, []string{"ann"}, routertest.Call[RoomJoined](ann, JoinRoom{Room: "go"}).Users)
	})
}
