//go:build !js

package routertest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestCodec_SendsAndReceivesInItsFormat(t *testing.T) {
	codec := cbor.New(nil)
	r := router.New(&router.Options{Codecs: []router.Codec{codec}, Subprotocols: []string{"chat.v1"}})
	router.RPC(r, func(ctx *router.Context, m Greet) (Greeted, error) {
		if m.Name == "" {
			return Greeted{}, errors.InvalidField("name", "must not be empty")
		}
		if err := ctx.Send(Greeted{Text: "event"}); err != nil {
			return Greeted{}, err
		}
		return Greeted{Text: m.Name}, ctx.Send(Compute{})
	})
	conn := routertest.Dial(t, r, routertest.Header("Sec-WebSocket-Protocol", "chat.v1"), routertest.Codec(codec))
	assert.Equal(t, Greeted{Text: "ann"}, routertest.Call[Greeted](conn, Greet{Name: "ann"}))
	frame := conn.Next()
	assert.True(t, frame.Binary)
	assert.Equal(t, "GREETED", frame.Type)
	assert.NotZero(t, frame.Meta.Timestamp)
	payload, err := codec.Marshal(Greeted{Text: "event"})
	assert.NoError(t, err)
	assert.Equal(t, payload, []byte(frame.Payload))
	assert.Equal(t, Compute{}, routertest.Receive[Compute](conn))
	assert.Equal(t, "name must not be empty", routertest.CallError(conn, Greet{}).Message)
	conn.SendText(`{"type":"GREET","payload":{"name":""}}`)
	assert.Equal(t, errors.InvalidArgument, routertest.ReceiveError(conn).Code)
}
