package conformance

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

// isProtocol reports whether the payload of a type is JSON in every format.
func isProtocol(typ string) bool { return protocol.IsReserved(typ) && typ != protocol.TypeProgress }

// encodePayload returns a payload in the format of a connection.
func (s *server) encodePayload(binary bool, typ string, payload any) ([]byte, error) {
	if payload == nil {
		return nil, nil
	}
	if binary && !isProtocol(typ) {
		return s.codec.Marshal(payload)
	}
	return json.Marshal(payload)
}

// decode reads a message of the client. Messages of the protocol may be text on every connection.
func (s *server) decode(usesCBOR bool, kind websocket.MessageType, message []byte) (map[string]any, error) {
	if kind == websocket.MessageText {
		m, err := decodeObject(message)
		if err != nil {
			return nil, err
		}
		if typ, _ := m["type"].(string); usesCBOR && m["payload"] != nil && !isProtocol(typ) {
			return nil, errors.New("the payload is JSON on a connection with CBOR")
		}
		return m, nil
	}
	if !usesCBOR {
		return decodeObject(message)
	}
	head, payload, err := wire.SplitBinary(message)
	if err != nil {
		return nil, err
	}
	m, err := decodeObject(head)
	if err != nil || len(payload) == 0 {
		return m, err
	}
	var value any
	if typ, _ := m["type"].(string); isProtocol(typ) {
		err = json.Unmarshal(payload, &value)
	} else {
		err = s.codec.Unmarshal(payload, &value)
	}
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	m["payload"] = generic(value)
	return m, nil
}

func decodeObject(text []byte) (map[string]any, error) {
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	m, ok := generic(raw).(map[string]any)
	if !ok {
		return nil, errors.New("not an object")
	}
	return m, nil
}

// encodeMessage returns a message whose head is an envelope without payload.
func encodeMessage(usesCBOR bool, head, payload []byte) (websocket.MessageType, []byte) {
	if !usesCBOR {
		if payload != nil {
			head = append(append(append(head[:len(head)-1:len(head)-1], `,"payload":`...), payload...), '}')
		}
		return websocket.MessageText, head
	}
	message := binary.BigEndian.AppendUint16(nil, uint16(len(head))) //nolint:gosec // heads are short
	return websocket.MessageBinary, append(append(message, head...), payload...)
}
