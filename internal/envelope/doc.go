// Package envelope encodes messages as envelopes in frames of [wsconn], and decodes their payloads: in JSON,
// and in the formats of codecs. A message to many connections is a [Publication], which is encoded once in
// each format and travels to other nodes in a packet. The package knows no connections and no topics: what it
// needs of them are values.
//
// It has no locks and no goroutines. Its state is one cache of how Go types are encoded. It calls methods of
// the application's messages and codecs: functions that encode return panics of these as errors, and callers
// of those that decode must recover them.
package envelope

// A Message is router.Message. The name is an alias of an unnamed type, so converting to it costs nothing.
type Message = interface{ MessageType() string }

// A Codec is router.Codec, as an alias for the same reason.
type Codec = interface {
	Subprotocol() string
	Marshal(v any) ([]byte, error)
	Unmarshal(payload []byte, v any) error
}

// A conflatable is a router.Conflatable.
type conflatable interface{ ConflationKey() string }
