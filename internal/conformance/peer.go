package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/coder/websocket"
)

// A frame is a message of the client.
type frame struct {
	message map[string]any
	typ     string
	at      time.Time
}

func (f *frame) id() string {
	id, _ := lookup(f.message, "meta.correlationId").(string)
	return id
}

// A peer is the server's end of a connection.
type peer struct {
	server *server
	number int // from 1, in the order of connections
	ws     *websocket.Conn
	conn   *gatedConn
	ctx    context.Context //nolint:containedctx // it ends with the connection
	cancel context.CancelFunc
	cbor   bool // payloads of the application are CBOR
	token  string
	frames *Inbox[*frame]
	ended  chan struct{} // closed after code is set
	code   websocket.StatusCode
}

func (p *peer) note(who, format string, args ...any) {
	p.server.transcript.note(who, "#%d %s", p.number, fmt.Sprintf(format, args...))
}

func (p *peer) read() {
	defer close(p.ended)
	defer p.cancel()
	p.ws.SetReadLimit(1 << 20)
	for {
		kind, message, err := p.ws.Read(p.ctx)
		if err != nil {
			if p.code = websocket.CloseStatus(err); p.code >= 0 {
				p.note("C→S", "close %d", p.code)
			}
			return
		}
		f := &frame{at: time.Now()}
		f.message, err = p.server.decode(p.cbor, kind, message)
		if err != nil {
			p.note("C→S", "%s", message)
			p.server.violation("the client has sent an invalid message, "+err.Error(), string(message))
			continue
		}
		p.note("C→S", "%s", show(f.message))
		if problem := p.server.schema.checkMessage("client", f.message); problem != "" {
			p.server.violation("the client has sent an invalid message, "+problem, string(message))
		}
		f.typ, _ = f.message["type"].(string)
		p.answerByItself(f)
	}
}

func (p *peer) answerByItself(f *frame) {
	s := p.server
	switch {
	case f.typ == "__heartbeat":
		p.sendRaw(`{"type":"__heartbeat_ack","meta":{"ts":1730000000000}}`)
		return
	case f.typ == "$ws:hello" && !s.manual.Load():
		p.reply(f, "$ws:welcome", s.welcomeTo(f))
	case lookup(f.message, "meta.ack") == true && !s.manualAck.Load():
		p.reply(f, "$ws:ack", nil)
	}
	p.frames.Add(f)
}

// send sends a message. meta are further members; it may be nil.
func (p *peer) send(typ string, meta map[string]any, payload any) {
	all := map[string]any{"timestamp": p.server.clock.timestamp()}
	maps.Copy(all, meta)
	head, err := json.Marshal(map[string]any{"type": typ, "meta": all})
	if err != nil {
		panic(err)
	}
	encoded, err := p.server.encodePayload(p.cbor, typ, payload)
	if err != nil {
		panic(err)
	}
	message := map[string]any{"type": typ, "meta": all}
	if payload != nil {
		message["payload"] = payload
	}
	p.note("S→C", "%s", show(message))
	if problem := p.server.schema.checkMessage("server", generic(message).(map[string]any)); problem != "" {
		p.server.violation("the scenario sends an invalid message, "+problem, show(message))
	}
	p.write(head, encoded)
}

// sendRaw sends a text that need not be a message.
func (p *peer) sendRaw(text string) {
	p.note("S→C", "%s", text)
	p.write([]byte(text), nil)
}

func (p *peer) write(head, payload []byte) {
	kind, message := encodeMessage(p.cbor, head, payload)
	_ = p.ws.Write(p.ctx, kind, message)
}

// reply sends an answer to a message.
func (p *peer) reply(f *frame, typ string, payload any) {
	meta := map[string]any{}
	if id := f.id(); id != "" {
		meta["correlationId"] = id
	}
	p.send(typ, meta, payload)
}

// mute stops reading, as on a half-open connection: pings and heartbeats have no answer.
func (p *peer) mute() { p.note("S→C", "goes silent"); p.conn.shut.Store(true) }

// close sends a close frame.
func (p *peer) close(code int, reason string) {
	p.note("S→C", "close %d %s", code, reason)
	_ = p.ws.Close(websocket.StatusCode(code), reason)
}

// cut ends the connection without a close frame.
func (p *peer) cut() { p.note("S→C", "cut"); p.cancel(); _ = p.conn.Close() }
