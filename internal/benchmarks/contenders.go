package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// A contender is a server that answers one type of request and can publish to all connections.
type contender struct {
	name    string
	hello   string // first request of every client, which the server answers; "" for none
	request string
	serve   func() (handler http.Handler, publish func(n int))
}

var contenders = []contender{
	{"penstock", "", request, servePenstock},
	{"handmade", "", request, serveHandmade},
	{"coder", "", request, serveCoder},
	{"gorilla", "", request, serveGorilla},
	{"gws", "", request, serveGWS},
	{"melody", "", request, serveMelody},
	{"centrifuge", `{"id":1,"connect":{}}`, `{"id":2,"rpc":{"method":"say","data":` + payload + `}}`, serveCentrifuge},
}

const (
	payload = `{"room":"general","text":"The quick brown fox jumps over the lazy dog, and the dog does not even look up.","n":1234567}`
	request = `{"type":"SAY","meta":{"timestamp":1730000000000,"correlationId":"b7c1-42"},"payload":` + payload + `}`
)

// published is the published message, 200 bytes.
var published = []byte(`{"type":"SAID","meta":{"timestamp":1730000000000},"payload":{"room":"general","user":"ann","text":"The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once.","n":1234567}}`)

// Say is the payload of a request. Typed contenders decode it.
type Say struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

// MessageType returns the name of the request.
func (Say) MessageType() string { return "SAY" }

// Validate is called by every typed contender.
func (m Say) Validate() error {
	if m.Room == "" || m.Text == "" {
		return fmt.Errorf("room and text must not be empty")
	}
	return nil
}

// Said is the payload of a reply. Typed contenders encode it.
type Said struct {
	Room string `json:"room"`
	User string `json:"user"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

// MessageType returns the name of the reply.
func (Said) MessageType() string { return "SAID" }

func said(m Say) Said { return Said{Room: m.Room, User: "ann", Text: m.Text, N: m.N} }

type meta struct {
	Timestamp     int64  `json:"timestamp"`
	CorrelationID string `json:"correlationId,omitempty"`
}

// answerTyped is the usual handler code of applications that use a WebSocket library directly.
func answerTyped(data []byte) ([]byte, error) {
	var in struct {
		Type    string          `json:"type"`
		Meta    meta            `json:"meta"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	switch in.Type {
	case "SAY":
		var m Say
		if err := json.Unmarshal(in.Payload, &m); err != nil {
			return nil, err
		}
		if err := m.Validate(); err != nil {
			return nil, err
		}
		return json.Marshal(struct {
			Type    string `json:"type"`
			Meta    meta   `json:"meta"`
			Payload Said   `json:"payload"`
		}{"SAID", meta{time.Now().UnixMilli(), in.Meta.CorrelationID}, said(m)})
	default:
		return nil, fmt.Errorf("unknown type %q", in.Type)
	}
}
