package router_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

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
