package ask

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// A lonelyNode knows one other node, and publishes nothing.
type lonelyNode struct {
	broker.Node

	name string
}

func (s lonelyNode) Name() string                       { return s.name }
func (lonelyNode) Nodes() (others []string, all bool)   { return []string{"two"}, true }
func (lonelyNode) Publish(topic string, p []byte) error { return nil }

func newNode(name string) *Node {
	n := new(Node)
	n.Init(Config{
		Node: lonelyNode{name: name}, MaxOpen: 3,
		ByID: func(string) Clients { return Clients{} }, ByUser: func(string, string) Clients { return Clients{} },
	})
	return n
}

// testAnswers returns answers to an ask, which have everything that an answer can contain.
func testAnswers(number uint64, details bool) (packets [][]byte) {
	at := time.UnixMicro(1_730_000_000_000_000)
	first := beginListing(number, []Conn{{ConnID: "one", IP: netip.MustParseAddr("192.0.2.1"), Subprotocol: "a.v1", OpenedAt: at}, {ConnID: "two"}, {ConnID: "three"}}, 5, details)
	if !details {
		first.add(1, &Outcome{Subprotocol: "a.v1", Message: []byte("message")})
		first.add(2, &Outcome{Err: &errors.Error{Code: errors.Aborted, Message: "no", Err: errors.New("why")}})
	}
	again := beginAnswer(number)
	again.add(1, &Outcome{Err: errNoConn}) // has an outcome
	again.add(7, &Outcome{Err: errNoConn}) // does not exist
	again.add(3, &Outcome{Err: &Limit{Kind: "queue", Observed: 2, Limit: 1, RetryAfter: errors.Never}})
	return [][]byte{first.bytes, again.bytes}
}

func TestAnswer_ContainsWhatWasAdded(t *testing.T) {
	n := newNode("one")
	a, nodes, all, err := n.begin(false, everyNode)
	require.NoError(t, err)
	assert.True(t, all)
	assert.Equal(t, []string{"two"}, nodes)
	for _, packet := range testAnswers(a.number, false) {
		n.Receive("two", packet)
	}
	outcomes, complete := a.take()
	assert.True(t, complete)
	assert.Equal(t, []Outcome{
		{Node: "two", ConnID: "one", Subprotocol: "a.v1", Message: []byte("message")},
		{Node: "two", ConnID: "two", Err: &errors.Error{Code: errors.Aborted, Message: "no", Err: errors.New("why")}},
		{Node: "two", ConnID: "three", Err: &Limit{Kind: "queue", Observed: 2, Limit: 1, RetryAfter: errors.Never}},
	}, outcomes)
	a.end()
	assertIdle(t, n)
}

func assertIdle(t *testing.T, n *Node) {
	t.Helper()
	asked, served, calls, size := n.Open()
	assert.Zero(t, asked)
	assert.Zero(t, served)
	assert.Zero(t, calls)
	assert.Zero(t, size)
}

// TestAnswer_MalformedOnesAreIgnored receives all prefixes of answers, and answers with random
// changes, of a node that was asked and of another one.
func TestAnswer_MalformedOnesAreIgnored(t *testing.T) {
	rnd := rand.New(rand.NewPCG(59, 59))
	for _, details := range []bool{false, true} {
		for n := range 3000 {
			node := newNode("one")
			a, _, _, err := node.begin(details, everyNode)
			require.NoError(t, err)
			for _, packet := range testAnswers(a.number, details) {
				switch {
				case 2+n < len(packet):
					packet = packet[:2+n]
				default:
					for range 1 + rnd.IntN(3) {
						packet[2+rnd.IntN(len(packet)-2)] = byte(rnd.IntN(256))
					}
				}
				outcomes, conns := len(a.outcomes), len(a.conns)
				node.Receive("three", packet) // was not asked
				assert.Len(t, a.outcomes, outcomes)
				assert.Len(t, a.conns, conns)
				node.Receive("two", packet)
			}
			seen := map[string]bool{}
			for _, o := range a.outcomes {
				assert.False(t, seen[o.ConnID], "two outcomes")
				seen[o.ConnID] = true
			}
			a.end()
			assertIdle(t, node)
		}
	}
}

// A countedClient counts the calls.
type countedClient struct{ called *int }

func (countedClient) Describe() Conn { return Conn{} }

func (c countedClient) Called() Called {
	*c.called++
	return Called{}
}

// TestAsk_MalformedOnesAreIgnored receives all prefixes of asks.
func TestAsk_MalformedOnesAreIgnored(t *testing.T) {
	n := newNode("one")
	called := 0
	n.config.ByID = func(string) Clients { return Clients{Total: 1, First: []Client{countedClient{&called}}} }
	m := &Message{Type: "ASK", Trace: tracing.TraceContext{Parent: "p", State: "s"}, Payloads: []Payload{{"", []byte(`{"a":1}`)}, {"a.v1", []byte{}}}}
	user := appendAsk(appendString(appendString([]byte{UserAsk}, "acme"), "ann"), 7, time.Second, m)
	conn := appendAsk(appendString([]byte{connAsk}, "one"), 8, time.Second, m)
	for end := 1; end < len(user); end++ {
		n.ReceiveUserAsk("two", user[:end])
	}
	for end := 1; end < len("one")+3; end++ {
		n.Receive("two", conn[:end])
	}
	n.Receive("two", []byte{askEnd})
	n.Receive("two", []byte{99})
	assert.Zero(t, called)
	in := packetReader{rest: conn[len("one")+2:]}
	assert.Equal(t, receivedAsk{from: "two", number: 8, timeout: time.Second, message: m}, in.readAsk("two"))
	assert.False(t, in.malformed)
	assertIdle(t, n)
}

// TestServedAsks_RepeatedAskMakesNoCall receives an ask again while its calls have no outcome.
func TestServedAsks_RepeatedAskMakesNoCall(t *testing.T) {
	var s servedAsks
	key := servedKey{"two", 1}
	ctx, isNew, err := s.begin(key, 2, 3)
	require.NoError(t, err)
	assert.True(t, isNew)
	_, isNew, err = s.begin(key, 2, 3)
	require.NoError(t, err)
	assert.False(t, isNew)
	_, _, err = s.begin(servedKey{"three", 1}, 2, 3)
	assert.Equal(t, &Limit{Kind: "in_flight", Observed: 4, Limit: 3}, err)
	s.abort(servedKey{"two", 2})
	s.nodeLeft("three")
	require.NoError(t, ctx.Err())
	s.callEnded()
	_, _, err = s.begin(servedKey{"three", 1}, 2, 3)
	require.NoError(t, err, "one call has ended")
	s.end(key)
	require.Error(t, ctx.Err())
	s.callEnded()
	s.callEnded()
	s.callEnded()
	s.end(servedKey{"three", 1})
	assert.Nil(t, s.open)
	assert.Zero(t, s.calls)
}

// TestAsk_UnreadAnswersAreBounded receives more than may wait.
func TestAsk_UnreadAnswersAreBounded(t *testing.T) {
	n := newNode("one")
	a, _, _, err := n.begin(false, func(string) bool { return false })
	require.NoError(t, err)
	a.listOwn([]Conn{{ConnID: "a"}, {ConnID: "b"}, {ConnID: "c"}, {ConnID: "d"}, {ConnID: "e"}}, 5)
	message := make([]byte, maxAnswerBytes/4)
	for place := range uint64(5) {
		a.addOwn(place+1, Outcome{Message: message})
	}
	outcomes, complete := a.take()
	assert.True(t, complete)
	require.Len(t, outcomes, 5)
	for _, o := range outcomes[:4] {
		assert.NoError(t, o.Err)
		assert.Len(t, o.Message, len(message))
	}
	assert.Equal(t, errManyAnswers, outcomes[4].Err)
	assert.Empty(t, outcomes[4].Message)
	a.end()
	assertIdle(t, n)
}

// TestNode_ConnIDsNameIt makes IDs on nodes with several names.
func TestNode_ConnIDsNameIt(t *testing.T) {
	seen := map[string]bool{}
	names := []string{"1", "2", "a long name of a node", ""}
	for _, name := range names {
		n := newNode(name)
		for range 100 {
			id := n.NewConnID()
			assert.Regexp(t, `^[A-Z2-7]{32}$`, id)
			assert.False(t, seen[id[nodeHashLength:]])
			seen[id[nodeHashLength:]] = true
			for _, other := range names {
				assert.Equal(t, other == name, hashNode(other).isIn(id))
			}
			assert.False(t, n.hash.isIn(id[1:]))
		}
	}
}
