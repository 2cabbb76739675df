package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

func (c *client) join() RoomJoined {
	c.t.Helper()
	require.NoError(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, []byte(`{"type":"$ws:hello"}`))) // else it receives no offsets
	c.send(JoinRoom{Room: "go"})
	return receive(c, func(RoomJoined) bool { return true })
}

// nextMessage returns the offset and the text of the next SAID message.
func (c *client) nextMessage() (offset uint64, text string) {
	c.t.Helper()
	for {
		switch e := c.next(); e.Type {
		case Said{}.MessageType():
			var m Said
			require.NoError(c.t, json.Unmarshal(e.Payload, &m))
			return e.Meta.Offset, m.Text
		case RoomJoined{}.MessageType():
			var m RoomJoined
			require.NoError(c.t, json.Unmarshal(e.Payload, &m))
			require.False(c.t, m.Lost)
			require.Empty(c.t, m.History)
		}
	}
}

// A failure is an error as a client receives it.
type failure struct{ Code errors.Code }

func (failure) MessageType() string { return "ERROR" }

func (c *client) nextFailure() errors.Code {
	c.t.Helper()
	return receive(c, func(failure) bool { return true }).Code
}

// Bob returns to alternate nodes, while ann is at most 60 messages ahead of him.
func TestNodes_MemberThatReconnectsSeesEveryMessageOnceAndInOrder(t *testing.T) {
	const last, ahead, perConn = 400, 60, 37
	args := "-addr=localhost:0 -capacity=10000 -redis=redis://" + redistest.Start(t).Addr
	nodes := []*node{startNode(t, args), startNode(t, args)}
	ann, bob := nodes[0].dial(t, "ann"), nodes[1].dial(t, "bob")
	ann.join()
	position := bob.join().Position

	unread := make(chan struct{}, ahead)
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	defer publishing.Wait()
	defer cancel()
	publishing.Go(func() {
		for _, text := range textsFrom(1, last) {
			select {
			case unread <- struct{}{}:
				ann.send(Say{Room: "go", Text: text})
			case <-ctx.Done():
				return
			}
		}
	})
	for n := 1; n <= last; n++ {
		offset, text := bob.nextMessage()
		require.Equal(t, position.Offset+1, offset)
		require.Equal(t, fmt.Sprint("message ", n), text)
		position.Offset = offset
		<-unread
		if n%perConn == 0 {
			_ = bob.ws.CloseNow()
			bob = nodes[n/perConn%2].dial(t, "bob")
			bob.send(JoinRoom{"go", position})
		}
	}
}

// Bob's node is cut off from Redis while ann sends messages. He receives them afterwards, without
// asking for them.
func TestNodes_MemberReceivesMessagesOfOutageInOrder(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	args := "-addr=localhost:0 -capacity=1000 -redis=redis://"
	one, two := startNode(t, args+server.Addr), startNode(t, args+proxy.Addr)
	ann, bob := one.dial(t, "ann"), two.dial(t, "bob")
	for _, c := range []*client{ann, bob} {
		c.join()
	}
	proxy.Cut()
	for _, text := range textsFrom(1, 20) {
		ann.send(Say{Room: "go", Text: text})
	}
	receive(ann, func(m Said) bool { return m.Text == "message 20" })
	proxy.Restore()
	for n := 1; n <= 20; n++ {
		offset, text := bob.nextMessage()
		assert.EqualValues(t, n, offset)
		assert.Equal(t, fmt.Sprint("message ", n), text)
	}
	for _, c := range []*client{ann, bob} {
		c.send(SearchHistory{"go", "MESSAGE"})
		assert.Equal(t, textsFrom(1, 20), textsOf(receive(c, func(HistoryFound) bool { return true }).Matches), "search finds the same on all nodes")
	}
}

func TestNodes_JoinIsAnsweredWhileRedisIsAway(t *testing.T) {
	testscale.FullOnly(t, "TestJoin_IsAnsweredWhileHistoryCannotBeRead")
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	proxy.Cut()
	ann := startNode(t, "-addr=localhost:0 -capacity=1000 -redis=redis://"+proxy.Addr).dial(t, "ann")
	ann.send(JoinRoom{Room: "go"})
	assert.Equal(t, errors.DeadlineExceeded, ann.nextFailure())
	ann.send(Say{Room: "go", Text: "hi"})
	assert.Equal(t, errors.FailedPrecondition, ann.nextFailure(), "ann is no member")
	proxy.Restore()
	assert.Equal(t, []string{"ann"}, ann.join().Users)
}

// The first attempt fails before Redis receives the message, or stores it without an answer.
func TestNodes_RepeatedMessageIsNotDoubledAfterOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*redistest.Proxy)
		codes []errors.Code
	}{
		"no connection": {(*redistest.Proxy).Cut, []errors.Code{errors.Unavailable, broker.OutcomeUnknown}},
		"no answer":     {(*redistest.Proxy).StallReplies, []errors.Code{broker.OutcomeUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no answer" { // the node waits for it
				testscale.FullOnly(t, "TestSay_RepeatedMessageIsPublishedOnce")
			}
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			args := "-addr=localhost:0 -capacity=10000 -redis=redis://"
			one, two := startNode(t, args+server.Addr), startNode(t, args+proxy.Addr)
			ann, bob := one.dial(t, "ann"), two.dial(t, "bob")
			ann.join()
			bob.join()
			bob.send(Say{Room: "go", Text: "before"})
			bob.nextMessage()

			tt.fault(proxy)
			bob.send(Say{"go", "once", "id"})
			assert.Contains(t, tt.codes, bob.nextFailure())
			proxy.Restore()
			bob.sayUntilAccepted(Say{"go", "once", "id"})
			bob.sayUntilAccepted(Say{"go", "after", "another id"})
			for _, want := range []string{"before", "once", "after"} {
				_, text := ann.nextMessage()
				assert.Equal(t, want, text)
			}
		})
	}
}

// sayUntilAccepted repeats m until it is answered without an error.
func (c *client) sayUntilAccepted(m Say) {
	c.t.Helper()
	for {
		c.send(m)
		c.send(Who{m.Room}) // handled afterwards
		e := c.next()
		for e.Type != "ERROR" && e.Type != "RPC_ERROR" && e.Type != (Users{}).MessageType() {
			e = c.next()
		}
		if e.Type == (Users{}).MessageType() {
			return
		}
		receive(c, func(Users) bool { return true })
	}
}

func TestNodes_HistorySurvivesRestart(t *testing.T) {
	args := "-addr=localhost:0 -capacity=1000 -redis=redis://" + redistest.Start(t).Addr
	first := startNode(t, args)
	ann := first.dial(t, "ann")
	position := ann.join().Position
	for _, text := range textsFrom(1, 60) {
		ann.send(Say{Room: "go", Text: text})
	}
	receive(ann, func(m Said) bool { return m.Text == "message 60" })
	first.kill()

	second := startNode(t, args)
	joined := second.dial(t, "bob").join()
	assert.Equal(t, Position{position.Epoch, 60}, joined.Position)
	assert.Equal(t, textsFrom(11, 60), textsOf(joined.History))

	ann = second.dial(t, "ann")
	ann.send(JoinRoom{"go", Position{position.Epoch, 40}})
	for n := 41; n <= 60; n++ {
		_, text := ann.nextMessage()
		assert.Equal(t, fmt.Sprint("message ", n), text)
	}
}
