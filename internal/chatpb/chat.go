// Package chatpb contains messages of Protocol Buffers for tests and examples.
package chatpb

import "google.golang.org/protobuf/encoding/protojson"

// MessageType returns the name of the message.
func (*Say) MessageType() string { return "SAY" }

// MessageType returns the name of the message.
func (*Said) MessageType() string { return "SAID" }

// MarshalJSON returns the JSON mapping of Protocol Buffers.
func (m *Said) MarshalJSON() ([]byte, error) { return protojson.Marshal(m) }

// UnmarshalJSON decodes the JSON mapping of Protocol Buffers.
func (m *Said) UnmarshalJSON(b []byte) error { return protojson.Unmarshal(b, m) }
