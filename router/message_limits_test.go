package router_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Bag is a message that may contain anything.
type Bag struct {
	Items any `json:"items"`
}

func (Bag) MessageType() string { return "BAG" }

// newBagRouter returns a router that counts the bags it handles.
func newBagRouter(limit int) (r *router.Router, handled *int) {
	handled = new(int)
	r = router.New(discardLogs(router.Options{Limits: router.Limits{Elements: limit}, Codecs: []router.Codec{cbor.New(nil)}}))
	router.RPC(r, func(*router.Context, Bag) (Counted, error) {
		*handled++
		return Counted{}, nil
	})
	return r, handled
}

// TestLimits_Elements sends bags with exactly as many elements as are allowed, and with one more.
func TestLimits_Elements(t *testing.T) {
	const limit = 50
	repeated := func(n int, item any) (items []any) {
		for range n {
			items = append(items, item)
		}
		return items
	}
	members := func(n int) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprint("key ", i)] = strings.Repeat(`,[{"\`, 10)
		}
		return m
	}
	for name, tt := range map[string]struct{ allowed, rejected any }{
		"numbers":       {repeated(limit-1, 7), repeated(limit, 7)},
		"empty arrays":  {repeated(limit-1, []any{}), repeated(limit, []any{})},
		"empty objects": {repeated(limit-1, map[string]any{}), repeated(limit, map[string]any{})},
		"arrays of one": {repeated((limit-1)/2, []any{1}), repeated(limit/2, []any{1})},
		"members":       {members(limit - 1), members(limit)},
		"a text":        {strings.Repeat(`,[{"\`, limit), members(limit)},
		"bytes":         {bytes.Repeat([]byte{0x80}, 10*limit), members(limit)},
	} {
		for format, opts := range map[string][]routertest.Option{"JSON": nil, "CBOR": {routertest.Codec(cbor.New(nil))}} {
			runSynctest(t, name+" as "+format, func(t *testing.T) {
				r, handled := newBagRouter(limit)
				client := routertest.Dial(t, r, opts...)
				routertest.Call[Counted](client, Bag{tt.allowed})
				assert.Equal(t, 1, *handled)
				err := routertest.CallError(client, Bag{tt.rejected})
				assert.Equal(t, errors.InvalidArgument, err.Code)
				assert.Contains(t, err.Message, "at most 50 elements")
				assert.Equal(t, 1, *handled)
			})
		}
	}
}

// TestLimits_ElementsBoundMemory sends the payloads that take the most memory when they are decoded.
func TestLimits_ElementsBoundMemory(t *testing.T) {
	const payload = 60 << 10
	for name, tt := range map[string]struct {
		opts    []routertest.Option
		message string
	}{
		"JSON": {nil, `{"type":"BAG","meta":{"correlationId":"1"},"payload":{"items":[` + strings.Repeat("{},", payload/3) + `{}]}}`},
		"CBOR": {[]routertest.Option{routertest.Codec(cbor.New(nil))}, "\x00\x2b" + `{"type":"BAG","meta":{"correlationId":"1"}}` +
			"\xa1\x65items\x99\xf0\x00" + strings.Repeat("\xa0", payload)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, handled := newBagRouter(0)
				client := routertest.Dial(t, r, tt.opts...)
				synctest.Wait()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if tt.opts == nil {
					client.SendText(tt.message)
				} else {
					client.SendBinary([]byte(tt.message))
				}
				frame := client.Next()
				runtime.ReadMemStats(&after)
				require.Contains(t, frame.Text, "at most 10000 elements")
				assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10*payload), "of the client and the server")
				assert.Zero(t, *handled)
			})
		})
	}
}

func TestLimits_ElementsInProtocolBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Codecs: []router.Codec{protobuf.Codec{}}}))
		router.RPC(r, func(_ *router.Context, m *chatpb.Say) (*chatpb.Said, error) {
			assert.Len(t, m.GetMentions(), 10_000)
			return &chatpb.Said{}, nil
		})
		client := routertest.Dial(t, r, routertest.Codec(protobuf.Codec{}))
		err := routertest.CallError(client, &chatpb.Say{Mentions: make([]int64, 10_001)})
		assert.Equal(t, errors.InvalidArgument, err.Code)
		routertest.Call[*chatpb.Said](client, &chatpb.Say{Mentions: make([]int64, 10_000)})
	})
}

// A countedPipe counts the bytes that the server reads.
type countedPipe struct {
	net.Conn
	read *atomic.Int64
}

func (c countedPipe) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A pipeClient writes frames to a pipe that holds nothing back, and keeps what it receives.
type pipeClient struct {
	net.Conn
	received chan string // after the end of the connection
}

func dialPipe(t *testing.T, r *router.Router, read *atomic.Int64) *pipeClient {
	client, server := net.Pipe()
	c := &pipeClient{client, make(chan string, 1)}
	t.Cleanup(func() { _ = client.Close() })
	go r.ServeHTTP(&hijackable{httptest.NewRecorder(), countedPipe{server, read}}, handshakeRequest())
	go func() {
		received, _ := io.ReadAll(client)
		c.received <- string(received)
	}()
	return c
}

// write writes in the background, because the server may not read.
func (c *pipeClient) write(p []byte) { go func() { _, _ = c.Write(p) }() }

// longFrame returns a message of Blob with a text of size bytes, more than 126, in one frame.
func longFrame(size int) []byte {
	text := fmt.Sprintf(`{"type":"BLOB","payload":{"text":%q}}`, strings.Repeat("x", size))
	frame := binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, uint64(len(text)))
	if len(text) <= math.MaxUint16 { // the shortest form is the only valid one
		frame = binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text)))
	}
	return append(append(frame, 0, 0, 0, 0), text...)
}

// TestLimits_InboundBytesBoundsIncompleteMessages has clients that send all of a message but its
// last byte. Others are served meanwhile, and the memory is free again after the timeout.
func TestLimits_InboundBytesBoundsIncompleteMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, size, total, buffer = 100, 1 << 20, 8 << 20, 16 << 10
		r := router.New(discardLogs(router.Options{Limits: router.Limits{MaxMessageBytes: 2 * size, InboundBytes: total}}))
		var handled atomic.Int64
		router.On(r, func(*router.Context, Blob) error { handled.Add(1); return nil })
		var read atomic.Int64
		message := longFrame(size)
		var incomplete []*pipeClient
		for range clients {
			c := dialPipe(t, r, &read)
			c.write(message[:len(message)-1])
			incomplete = append(incomplete, c)
		}
		synctest.Wait()
		assert.Greater(t, read.Load(), int64(total/2))
		assert.Less(t, read.Load(), int64(total+2*size+clients*2*buffer), "one more message may exceed the limit")

		other := dialPipe(t, r, &read)
		other.write(text(fmt.Sprintf(`{"type":"BLOB","payload":{"text":%q}}`, strings.Repeat("x", buffer/2))))
		synctest.Wait()
		assert.EqualValues(t, 1, handled.Load(), "a message that needs one read")
		time.Sleep(time.Second)
		other.write(message)
		synctest.Wait()
		assert.EqualValues(t, 1, handled.Load())
		time.Sleep(9 * time.Second) // Timeouts.Message
		synctest.Wait()
		assert.EqualValues(t, 2, handled.Load())
		codes := map[uint16]int{}
		for _, c := range incomplete {
			_ = c.Close() // it does not answer the close frame
			codes[closeCodeIn(<-c.received)]++
		}
		assert.Positive(t, codes[1008], "those that used the memory")
		assert.Equal(t, clients, codes[1008]+codes[1013])
		_ = other.Close()
		time.Sleep(time.Second)
		assert.Zero(t, r.Stats().Conns)
	})
}

// closeCodeIn returns the code of the close frame at the end of what a client has received.
func closeCodeIn(received string) uint16 {
	_, frames, _ := strings.Cut(received, "\r\n\r\n")
	if at := strings.LastIndexByte(frames, 0x88); at >= 0 && len(frames) >= at+4 {
		return binary.BigEndian.Uint16([]byte(frames[at+2:]))
	}
	return 0
}

// TestLimits_LongMessagesTakeTurns has clients with messages that are together much longer than the
// limit. Each is handled, because none waits with a part of what it needs.
func TestLimits_LongMessagesTakeTurns(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{1, 300_000, 3_000_000} {
		runSynctest(t, fmt.Sprint(total), func(t *testing.T) {
			const clients, size = 50, 250_000
			r := router.New(discardLogs(router.Options{Limits: router.Limits{MaxMessageBytes: 2 * size, InboundBytes: total}}))
			var handled atomic.Int64
			router.On(r, func(*router.Context, Blob) error { handled.Add(1); return nil })
			var read atomic.Int64
			for range clients {
				dialPipe(t, r, &read).write(longFrame(size))
			}
			synctest.Wait()
			assert.EqualValues(t, clients, handled.Load())
			assert.Equal(t, clients, r.Stats().Conns)
		})
	}
}

// texts keep each JSON text that they are decoded from.
type texts []string

func (all *texts) UnmarshalJSON(text []byte) error {
	*all = append(*all, string(text))
	return nil
}

// A Log is a message whose decoding shows how often it was decoded.
type Log struct {
	Texts texts `json:"texts"`
	N     int   `json:"n"`
}

func (Log) MessageType() string { return "LOG" }

// A Linked is a Log that is received by pointer.
type Linked struct{ Log }

func (*Linked) MessageType() string { return "LINKED" }

// TestDecode_WhateverFollowsThePayload sends envelopes of which the JSON library can read the payload before
// the rest is validated, and others. Only valid ones are accepted, and their payload is decoded once.
func TestDecode_WhateverFollowsThePayload(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	answer := func(m Log) (Log, error) { return Log{Texts: texts{}, N: m.N*10 + len(m.Texts)}, nil }
	router.RPC(r, func(_ *router.Context, m Log) (Log, error) { return answer(m) })
	router.RPC(r, func(_ *router.Context, m *Linked) (Log, error) { return answer(m.Log) })
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const decoded = `"payload":{"texts":[],"n":71}`
	for members, want := range map[string]string{
		`"payload":{"texts":1,"n":7}`:                      decoded,
		`"payload": {"texts":1,"n":7} `:                    decoded,
		`"payload":{"texts":1,"n":7},"x":{}`:               decoded,
		`"x":{},"payload":{"texts":1,"n":7}`:               decoded,
		`"payload":{"n":7,"texts":"}"}`:                    decoded,
		`"payload":{"texts":1,"n":7},"payload":{"n":8}`:    `duplicate key`,
		`"payload":{"texts":1,"n":7},"type":"LOG"`:         `duplicate key`,
		`"payload":{"texts":1,"n":7},"meta":{}`:            `duplicate key`,
		`"payload":{"texts":1,"n":7},`:                     `not valid JSON`,
		`"payload":{"texts":1,"n":7}}`:                     `not valid JSON`,
		`"payload":{"texts":1,"n":7`:                       `ends too early`,
		`"payload":`:                                       `not valid JSON`,
		`"payload":{"texts":1,"n":true}`:                   `n must be an integer in range, not a boolean`,
		`"payload":{"texts":1,"n":true},"x":1`:             `n must be an integer in range, not a boolean`,
		`"payload":{"texts":1,"n":true},"x"`:               `not valid JSON`,
		`"payload":{"texts":1,"n":7,"n":7}`:                `must not occur twice`,
		`"x":1`:                                            `payload is missing`,
		`"payload":{"x":` + deep(62) + `,"n":7,"texts":1}`: decoded,
		`"payload":{"x":` + deep(63) + `,"n":7,"texts":1}`: `nested deeper than 64 levels`,
	} {
		for _, head := range []string{
			`"type":"LOG","meta":{"correlationId":"c"},`, `"meta":{"correlationId":"c"},"type":"LOG",`, `"type":"LINKED","meta":{"correlationId":"c"},`,
		} {
			ws := dialServer(t, server)
			write(t, ws, websocket.MessageText, "{"+head+members+"}")
			assert.Contains(t, read(t, ws), want, "%s%s", head, members)
			require.NoError(t, ws.CloseNow())
		}
	}
}
