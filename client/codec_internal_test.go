//go:build !js

package client

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/cbor"
)

// FuzzParse reads binary messages of a hostile server, and those that this client would send.
func FuzzParse(f *testing.F) {
	f.Add([]byte("\x00\x0e{\"type\":\"SAID\"}\xa0"), "SAID", "a-1")
	f.Add([]byte{0}, "$ws:subscribe", "")
	cn := &conn{client: &Client{opts: Options{Codec: cbor.New(nil)}}}
	f.Fuzz(func(t *testing.T, message []byte, typ, id string) {
		var e envelope
		if cn.parse(websocket.MessageBinary, message, &e) == nil {
			var v any
			_ = e.decode(&v)
		}
		if len(typ)+len(id) > 1000 {
			return // the head has at most 65,535 bytes
		}
		h := head{typ: typ, id: id, timeoutMs: 5, ack: true, credit: 3}
		e = envelope{}
		assert.NoError(t, cn.parse(websocket.MessageBinary, h.encodeBinary(message), &e))
		assert.Equal(t, string(message), string(e.Payload))
		assert.EqualValues(t, 5, e.Meta.TimeoutMs)
		assert.Equal(t, isProtocol(e.Type), e.codec == nil)
	})
}
