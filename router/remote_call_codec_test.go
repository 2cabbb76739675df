package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCallConn_Codecs calls clients in several formats from a node that has these formats in
// another order, and from nodes that do not have all of them.
func TestCallConn_Codecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		a1, a2 := newCountingCodec("a.v1"), newCountingCodec("a.v1")
		owner := newCodecNode(b, cbor.New(nil), a1)
		caller := newCodecNode(b, a2, cbor.New(nil))
		jsonOnly := newCodecNode(b)
		for name, tt := range map[string]struct {
			opts []routertest.Option
			code errors.Code // of the node that knows JSON only
		}{
			"JSON": {nil, ""},
			"cbor": {[]routertest.Option{routertest.Codec(cbor.New(nil))}, errors.Internal},
			"a.v1": {[]routertest.Option{routertest.Codec(a1)}, errors.Internal},
		} {
			before := map[*router.Conn]bool{}
			for _, c := range collect(owner) {
				before[c] = true
			}
			client := routertest.Dial(t, owner, append(tt.opts, routertest.Token("ann"))...)
			synctest.Wait()
			for _, c := range collect(owner) {
				if before[c] {
					continue
				}
				routertest.Handle(client, func(m Confirm) (Confirmed, error) { return Confirmed{Yes: m.Question == "delete?"}, nil })
				got := <-confirmByID(t.Context(), caller, c.ID())
				require.NoError(t, got.err, name)
				assert.True(t, got.reply.Yes, name)
				got = <-confirmByID(t.Context(), jsonOnly, c.ID())
				assert.Equal(t, tt.code, errors.CodeOf(got.err), "%s: %v", name, got.err)
			}
		}

		failure := "too complex"
		a2.marshalError.Store(&failure) // for one format of the caller
		var codes []errors.Code
		for reply := range router.CallUser[Confirmed](t.Context(), caller, "", "ann", Confirm{"delete?"}) {
			codes = append(codes, errors.CodeOf(reply.Err))
		}
		assert.ElementsMatch(t, []errors.Code{"", "", errors.Internal}, codes)
	})
}
