package jsoncode_test

import (
	"fmt"

	"github.com/penstock-go/penstock/codec/jsoncode"
)

// Move is a message type.
type Move struct {
	Piece string `json:"piece"`
	To    string `json:"to"`
}

// DecodeJSON and AppendJSON are what the command jsoncode writes for Move.
func (m *Move) DecodeJSON(p []byte) error {
	s := jsoncode.NewScanner(p)
	var seen uint64
	for more := s.Object(); more; more = s.NextMember() {
		switch string(s.Name()) {
		case "piece":
			s.Once(&seen, 1<<0)
			m.Piece = s.String()
		case "to":
			s.Once(&seen, 1<<1)
			m.To = s.String()
		default:
			s.Fail()
		}
	}
	return s.End()
}

func (m Move) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"piece":`...)
	b = jsoncode.AppendString(b, m.Piece)
	b = append(b, `,"to":`...)
	b = jsoncode.AppendString(b, m.To)
	return append(b, '}'), nil
}

func Example() {
	var m Move
	fmt.Println(m.DecodeJSON([]byte(`{"to": "f3", "piece": "\u265e"}`)), m)
	text, _ := m.AppendJSON(nil)
	fmt.Println(string(text))

	// An unknown member is left to the library, which ignores or rejects it.
	fmt.Println(m.DecodeJSON([]byte(`{"to": "f3", "check": true}`)))
	// Output:
	// <nil> {♞ f3}
	// {"piece":"♞","to":"f3"}
	// jsoncode: left to the JSON library
}
