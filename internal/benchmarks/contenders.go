package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A contender is a server that answers one type of request and can publish to all connections.
type contender struct {
	name       string
	hello      string             // first request of every client, which the server answers; "" for none
	request    func(n int) string // the nth request
	serve      func() (handler http.Handler, publish func(n int))
	command    func() ([]string, error) // the command of the server, instead of serve; an error if it cannot run here
	usable     func() error             // an error if serve cannot run here; nil if it always can
	env        []string                 // of the server
	plain      bool                     // no TLS
	waits      bool                     // answers Wait
	tells      bool                     // answers Tell
	compresses bool                     // can compress, and answers Save
}

var contenders = []contender{
	{name: "penstock", request: say, serve: servePenstock, waits: true, tells: true, compresses: true},
	{name: "bun", request: say, command: bunCommand, tells: true, compresses: true},
	{name: "epoll", request: say, serve: serveEpoll, plain: true},
	{name: "netconn", request: say, serve: serveNetConn},
	{name: "handmade", request: say, serve: serveHandmade},
	{name: "coder", request: say, serve: serveCoder, tells: true, compresses: true},
	{name: "gorilla", request: say, serve: serveGorilla, tells: true},
	{name: "gws", request: say, serve: serveGWS, waits: true, tells: true, compresses: true},
	{name: "melody", request: say, serve: serveMelody, tells: true},
	{name: "centrifuge", hello: `{"id":1,"connect":{}}`, request: rpc, serve: serveCentrifuge},
}

// prototypes run only if -only names them.
var prototypes = []contender{
	{name: "uring", request: say, serve: serveUring, usable: ringUsable, plain: true},
	{name: "uring-handover", request: say, serve: serveUringHandover, usable: ringUsable, plain: true},
}

// runnable returns the contenders that can run on this machine, and prints a line for each other one.
func runnable(all []contender) []contender {
	return slices.DeleteFunc(slices.Clone(all), func(c contender) bool {
		var err error
		switch {
		case c.command != nil:
			_, err = c.command()
		case c.usable != nil:
			err = c.usable()
		}
		if err != nil {
			fmt.Printf("\n%s: skipped, %v\n", c.name, err)
		}
		return err != nil
	})
}

// say returns the nth request of 200 bytes. Each has a text and a correlation ID of its own: a JSON
// library that keeps recent strings would otherwise not allocate the text, and a server may reject a
// correlation ID that is in flight.
func say(n int) string {
	return fmt.Sprintf(`{"type":"SAY","meta":{"timestamp":1730000000000,"correlationId":"b7c1-%06d"},"payload":%s}`, n, payload(n))
}

// tell returns an event, which has no correlation ID: the server sends what answers it as an event of its own.
func tell(n int) string {
	return fmt.Sprintf(`{"type":"TELL","meta":{"timestamp":1730000000000},"payload":%s}`, payload(n))
}

// rpc returns the nth request in centrifuge's protocol.
func rpc(n int) string {
	return fmt.Sprintf(`{"id":%d,"rpc":{"method":"say","data":%s}}`, 100_000+n, payload(n))
}

func payload(n int) string {
	return fmt.Sprintf(`{"room":"general","text":"%06d brown foxes jump over a lazy dog, and the dog does not look up.","n":1234567}`, n)
}

// published is the published message, 200 bytes.
var published = []byte(`{"type":"SAID","meta":{"timestamp":1730000000000},"payload":{"room":"general","user":"ann","text":"The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once.","n":1234567}}`)

// Say is the payload of a request. Typed contenders decode it.
type Say struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (Say) MessageType() string { return "SAY" }

// Validate is called by every typed contender.
func (m Say) Validate() error {
	if m.Room == "" || m.Text == "" {
		return fmt.Errorf("room and text must not be empty")
	}
	return nil
}

// Tell is Say as an event.
type Tell Say

func (Tell) MessageType() string { return "TELL" }

// Validate is that of Say.
func (m Tell) Validate() error { return Say(m).Validate() }

// Said is the payload of a reply. Typed contenders encode it.
type Said struct {
	Room string `json:"room"`
	User string `json:"user"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (Said) MessageType() string { return "SAID" }

func said(m Say) Said { return Said{Room: m.Room, User: "ann", Text: m.Text, N: m.N} }

// Wait is a request whose handler blocks.
type Wait struct {
	Ms int `json:"ms"`
}

func (Wait) MessageType() string { return "WAIT" }

func (m Wait) wait() { time.Sleep(time.Duration(m.Ms) * time.Millisecond) }

// Waited is the reply to Wait.
type Waited struct{}

func (Waited) MessageType() string { return "WAITED" }

// wait returns a request whose handler blocks.
func wait(d time.Duration) string {
	return fmt.Sprintf(`{"type":"WAIT","meta":{"correlationId":"b7c1-wait"},"payload":{"ms":%d}}`, d.Milliseconds())
}

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
	case "SAY", "TELL":
		var m Say
		if err := json.Unmarshal(in.Payload, &m); err != nil {
			return nil, err
		}
		if err := m.Validate(); err != nil {
			return nil, err
		}
		return marshalReply(in.Meta, said(m))
	case "SAVE":
		var m Save
		if err := json.Unmarshal(in.Payload, &m); err != nil {
			return nil, err
		}
		return marshalReply(in.Meta, Saved(m))
	case "WAIT":
		var m Wait
		if err := json.Unmarshal(in.Payload, &m); err != nil {
			return nil, err
		}
		m.wait()
		return marshalReply(in.Meta, Waited{})
	default:
		return nil, fmt.Errorf("unknown type %q", in.Type)
	}
}

// marshalReply encodes the reply to a request.
func marshalReply[M interface{ MessageType() string }](request meta, m M) ([]byte, error) {
	return json.Marshal(struct {
		Type    string `json:"type"`
		Meta    meta   `json:"meta"`
		Payload M      `json:"payload"`
	}{m.MessageType(), meta{time.Now().UnixMilli(), request.CorrelationID}, m})
}
