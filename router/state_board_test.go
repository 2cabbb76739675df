package router_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Delisted removes the quote of a symbol.
type Delisted struct {
	Symbol string `json:"symbol"`
}

func (Delisted) MessageType() string { return "DELISTED" }

func (d Delisted) ConflationKey() string { return d.Symbol }

// newStateRouter returns a router with topics feed/… that keep the current state.
func newStateRouter(b broker.Broker, messages int, opts *router.Options) *router.Router {
	if opts == nil {
		opts = &router.Options{}
	}
	opts.Broker = b
	opts.Codecs = []router.Codec{cbor.New(nil)}
	r := router.New(opts)
	router.Topic(r, "feed/{name}", &router.TopicOptions{
		History: router.History{Messages: messages}, Authorize: permit,
	})
	return r
}

// A quoteLog publishes quotes on feed/a, and knows the state at every position.
type quoteLog struct {
	mu     sync.Mutex
	states map[uint64]map[string]int
}

func newQuoteLog() *quoteLog { return &quoteLog{states: map[uint64]map[string]int{0: {}}} }

// publish publishes a quote, or its removal if n is 0. Its calls must not be concurrent.
func (l *quoteLog) publish(t *testing.T, r *router.Router, symbol string, n int) {
	t.Helper()
	var m router.Message = Quote{Symbol: symbol, N: n}
	var opts []router.PublishOption
	if n == 0 {
		opts = append(opts, router.Removed())
		m = Delisted{symbol}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, err := publishStored(t.Context(), r, "feed/a", m, opts...)
	require.NoError(t, err)
	state := map[string]int{}
	maps.Copy(state, l.states[at.Offset-1])
	if state[symbol] = n; n == 0 {
		delete(state, symbol)
	}
	l.states[at.Offset] = state
}

func (l *quoteLog) at(offset uint64) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states[offset]
}

// A board is a client of feed/a that keeps the quote of each symbol, as a client library does, and
// checks after every message that it has the quotes of its position.
type board struct {
	t      *testing.T
	log    *quoteLog
	client *routertest.Conn
	quotes map[string]int
	epoch  string // "" while the quotes are incomplete
	offset uint64 // up to which the quotes are complete

	answer   boardAnswer // the last one
	missing  int         // publications of the first part of the state that have not arrived
	more     bool        // other parts follow
	later    int         // publications that they contained
	previous uint64      // offset of the one that has
	states   int         // answers with a state
	losses   int         // notices
}

type boardAnswer struct {
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	Recovered bool   `json:"recovered"`
	State     *int   `json:"state"`
	More      bool   `json:"more"`

	Error *struct {
		Code      errors.Code `json:"code"`
		Retryable bool        `json:"retryable"`
	} `json:"error"` // of $ws:unsubscribed
}

// dial connects, subscribes, and receives what arrives before nothing happens any more.
func (b *board) dial(r *router.Router, opts ...routertest.Option) {
	b.t.Helper()
	b.client = routertest.Dial(b.t, r, opts...)
	b.subscribe()
	synctest.Wait()
	b.receive()
}

// subscribe asks for what was missed, or for the state.
func (b *board) subscribe() {
	position := ""
	if b.epoch != "" {
		position = fmt.Sprintf(`,"epoch":%q,"offset":%d`, b.epoch, b.offset)
	}
	b.client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true` + position + `}}`)
}

func (b *board) receive() {
	b.t.Helper()
	for b.client.Pending() > 0 {
		b.handle(b.client.Next())
	}
}

func (b *board) handle(frame routertest.Frame) {
	b.t.Helper()
	switch frame.Type {
	case "$ws:subscribed":
		b.begin(frame)
	case "$ws:state":
		require.True(b.t, b.more)
		b.more = false
		b.complete()
	case "$ws:unsubscribed":
		b.answer, b.more, b.epoch = boardAnswer{}, false, ""
		require.NoError(b.t, json.Unmarshal(frame.Payload, &b.answer))
	case "$ws:position":
		var moved boardAnswer
		require.NoError(b.t, json.Unmarshal(frame.Payload, &moved))
		b.epoch, b.offset = "", moved.Offset // the quotes are wrong
		b.losses++
	case "QUOTE":
		quote := decodeFrame[Quote](b.t, frame)
		b.quotes[quote.Symbol] = quote.N
		b.advance(offsetOf(b.t, frame))
	case "DELISTED":
		require.Zero(b.t, b.missing, "a state contains no removal")
		delete(b.quotes, decodeFrame[Delisted](b.t, frame).Symbol)
		b.advance(offsetOf(b.t, frame))
	default:
		b.t.Fatalf("unexpected message: %s", frame.Text)
	}
}

// begin handles the answer to a subscription.
func (b *board) begin(frame routertest.Frame) {
	b.t.Helper()
	b.answer = boardAnswer{}
	require.NoError(b.t, json.Unmarshal(frame.Payload, &b.answer))
	if b.answer.State == nil {
		require.True(b.t, b.answer.Recovered, frame.Text)
		require.Equal(b.t, b.offset, b.answer.Offset)
		b.epoch = b.answer.Epoch
		return
	}
	require.Equal(b.t, b.epoch == "", b.answer.Recovered, frame.Text)
	b.states++
	b.quotes, b.epoch, b.previous, b.missing = map[string]int{}, "", 0, *b.answer.State
	b.offset, b.more, b.later = b.answer.Offset, b.answer.More, 0
	b.complete()
}

// advance handles the offset of a publication.
func (b *board) advance(offset uint64) {
	b.t.Helper()
	if b.missing > 0 {
		require.Greater(b.t, offset, b.previous, "the offsets of a state ascend")
		require.LessOrEqual(b.t, offset, b.answer.Offset)
		b.previous = offset
		b.missing--
		b.complete()
		return
	}
	if b.more && offset <= b.answer.Offset {
		b.later++
		return
	}
	require.Equal(b.t, b.offset+1, offset)
	b.offset = offset
	b.check()
}

// complete ends the state.
func (b *board) complete() {
	b.t.Helper()
	if b.missing == 0 && !b.more {
		b.epoch = b.answer.Epoch
		b.check()
	}
}

func (b *board) check() {
	b.t.Helper()
	if b.epoch != "" {
		require.Equal(b.t, b.log.at(b.offset), b.quotes, "at offset %d", b.offset)
	}
}

// offsetOf returns the offset in the meta of a publication.
func offsetOf(t *testing.T, frame routertest.Frame) uint64 {
	t.Helper()
	head := []byte(frame.Text)
	if frame.Binary {
		head = head[2 : len(head)-len(frame.Payload)]
	}
	var envelope struct {
		Meta struct {
			Offset uint64 `json:"offset"`
		} `json:"meta"`
	}
	require.NoError(t, json.Unmarshal(head, &envelope))
	return envelope.Meta.Offset
}

func decodeFrame[M router.Message](t *testing.T, frame routertest.Frame) (m M) {
	t.Helper()
	unmarshal := json.Unmarshal
	if frame.Binary {
		unmarshal = cbor.New(nil).Unmarshal
	}
	require.NoError(t, unmarshal(frame.Payload, &m))
	return m
}

func TestReadState_ReturnsLatestMessageOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, nil)
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		log.publish(t, r, "js", 2)
		log.publish(t, r, "", 3) // the empty key is a key
		log.publish(t, r, "go", 4)
		log.publish(t, r, "js", 0)
		require.NoError(t, r.Publish("feed/a", Blob{Text: "no key"}))
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "c", N: 7}))
		messages, at, err := r.ReadState(t.Context(), "feed/a")
		require.NoError(t, err)
		assert.EqualValues(t, 7, at.Offset)
		var got []string
		for _, m := range messages {
			var quote Quote
			require.NoError(t, m.Decode(&quote))
			got = append(got, fmt.Sprintf("%d %s %d", m.Position.Offset, quote.Symbol, quote.N))
		}
		assert.Equal(t, []string{"3  3", "4 go 4", "7 c 7"}, got)
		_, _, err = r.ReadState(t.Context(), "other")
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
		_, _, err = r.ReadState(t.Context(), "")
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	})
}

func TestReadState_ReturnsAStateOfSeveralParts(t *testing.T) {
	counted := unreliable()
	r := newStateRouter(counted, 1, nil)
	const keys = 2000
	for n := range keys {
		err := r.Publish("feed/a", Quote{Symbol: fmt.Sprint(n, strings.Repeat("x", 200)), N: n}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
	messages, at, err := r.ReadState(t.Context(), "feed/a")
	require.NoError(t, err)
	assert.Greater(t, counted.reads.parts, int64(1))
	assert.EqualValues(t, keys, at.Offset)
	require.Len(t, messages, keys)
	for i, m := range messages {
		assert.EqualValues(t, i+1, m.Position.Offset)
	}
}

func TestStored_RemovalNeedsAKey(t *testing.T) {
	r := newStateRouter(nil, 1, nil)
	err := r.Publish("feed/a", Blob{}, router.Removed(), router.Stored(t.Context(), nil))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	assert.ErrorContains(t, err, "router_test.Blob")
}

func TestCurrentState_IsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, nil)
		recoveries := make(chan router.Recovery, 1)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			recovery, err := subscribeState(ctx, "feed/a")
			recoveries <- recovery
			return Echoed(m), err
		})
		router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
			_, err := subscribeState(ctx, "other")
			return Blocked{}, err
		})
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		log.publish(t, r, "js", 2)
		client := routertest.Dial(t, r)
		routertest.Call[Echoed](client, Echo{})
		recovery := <-recoveries
		assert.Equal(t, 2, recovery.State)
		assert.EqualValues(t, 2, recovery.Position.Offset)
		log.publish(t, r, "go", 3)
		for n := range 3 {
			assert.Equal(t, n+1, routertest.Receive[Quote](client).N)
		}
		assert.Equal(t, errors.FailedPrecondition, routertest.CallError(client, Block{}).Code)
	})
}
