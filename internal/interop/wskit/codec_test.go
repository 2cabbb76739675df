package wskit_test

import (
	"testing"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/router"
)

func TestWebSocket_ExchangesCBOR(t *testing.T) { runNode(t, "codec.test.mjs", codecs) }

var codecs = feature{configure: func(opts *router.Options) { opts.Codecs = []router.Codec{cbor.New(nil)} }}
