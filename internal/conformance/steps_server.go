package conformance

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// configure sets what the server does by itself: `server acks manual`.
func (r *run) configure(a *arguments) error {
	switch what := a.word(); what {
	case "greetings":
		r.manual.Store(a.word() == "manual")
	case "acks":
		r.manualAck.Store(a.word() == "manual")
	case "welcome":
		r.mu.Lock()
		r.welcome = a.object()
		r.mu.Unlock()
	case "session":
		r.mu.Lock()
		r.session = a.word()
		r.mu.Unlock()
	case "handshakes":
		r.handshakes(a)
	default:
		panic(scriptError("the server has no " + what))
	}
	return nil
}

// handshakes says what happens to handshakes: hold, release, delay 6s, silent 1 (the first one has no response), status 500 5 (the
// first five have this response) or close 4401.
func (r *run) handshakes(a *arguments) {
	var refuse func(http.ResponseWriter, *http.Request) bool
	switch what := a.word(); what {
	case "hold":
		r.hold()
		return
	case "release":
		r.release()
		return
	case "delay":
		d := r.clock.real(a.duration())
		refuse = func(http.ResponseWriter, *http.Request) bool { time.Sleep(d); return false }
	case "silent":
		n := a.number()
		refuse = func(_ http.ResponseWriter, req *http.Request) bool {
			if len(r.dials.All()) > n {
				return false
			}
			<-req.Context().Done()
			return true
		}
	case "status":
		status, n := a.number(), a.number()
		refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			if len(r.dials.All()) > n {
				return false
			}
			w.WriteHeader(status)
			return true
		}
	case "close":
		code, reason := a.number(), ""
		if a.more() {
			reason = a.word()
		}
		refuse = func(w http.ResponseWriter, req *http.Request) bool {
			r.rejectAfterUpgrade(w, req, code, reason)
			return true
		}
	default:
		panic(scriptError("handshakes have no " + what))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

// accepts expects a connection, which the following steps concern: `accept {"token":"new"} as old`.
func (r *run) accepts(a *arguments) error {
	p, ok := r.peers.Take(func(*peer) bool { return true }, r.config.Limit, r.stop())
	if !ok {
		return fmt.Errorf("the client has not connected; the driver has reported %s", r.unexpected())
	}
	r.peer = p
	if a.as != "" {
		r.peerOf[a.as] = p
	}
	if p.cbor != r.config.CBOR {
		return fmt.Errorf("the connection uses CBOR: %v, must be %v", p.cbor, r.config.CBOR)
	}
	if problem := mismatch("", map[string]any{"token": p.token}, a.pattern()); problem != "" {
		return fmt.Errorf("the handshake: %s", problem)
	}
	return nil
}

// noConnection expects that the client does not connect within a time of its clock: `no-connection 2s`.
func (r *run) noConnection(a *arguments) error {
	if _, ok := r.peers.Take(func(*peer) bool { return true }, r.clock.real(a.duration()), r.stop()); ok {
		return fmt.Errorf("the client has connected")
	}
	return nil
}

// receive returns the first message that has not been expected yet, and meets a condition.
func (r *run) receive(what string, match func(*frame) bool) (*frame, error) {
	f, ok := r.connection().frames.Take(match, r.config.Limit, r.stop())
	if ok {
		return f, nil
	}
	var others []string
	for _, f := range r.peer.frames.Waiting() {
		others = append(others, f.typ)
	}
	return nil, fmt.Errorf("the client has not sent %s; messages that no step has expected: %v; the driver has reported %s", what, others, r.unexpected())
}

func (r *run) connection() *peer {
	if r.peer == nil {
		panic(scriptError("there is no connection"))
	}
	return r.peer
}

func (r *run) bind(f *frame, as string) {
	if as != "" {
		r.bound[as], r.frames[as], r.times[as] = f.message, f, f.at
	}
}

// expect expects that the next message of a type matches: `expect ASK {"payload":{"n":1}} as f`.
func (r *run) expect(a *arguments) error {
	typ := a.word()
	f, err := r.receive(typ, func(f *frame) bool { return f.typ == typ })
	if err != nil {
		return err
	}
	r.bind(f, a.as)
	if problem := mismatch("", f.message, a.pattern()); problem != "" {
		return fmt.Errorf("%s, in %s", problem, show(f.message))
	}
	return nil
}

// find is expect for the first message that matches: other ones of the type may precede it.
func (r *run) find(a *arguments) error {
	typ, pattern := a.word(), a.pattern()
	f, err := r.receive(typ+" "+show(pattern), func(f *frame) bool { return f.typ == typ && mismatch("", f.message, pattern) == "" })
	if err == nil {
		r.bind(f, a.as)
	}
	return err
}

// refuses expects that no message of a type arrives, or has arrived, within a time of the client's clock: `refuse ASK 2s`.
func (r *run) refuses(a *arguments) error {
	typ := a.word()
	f, ok := r.connection().frames.Take(func(f *frame) bool { return f.typ == typ }, r.clock.real(a.duration()), r.stop())
	if ok {
		return fmt.Errorf("the client has sent %s", show(f.message))
	}
	return nil
}

// increasing expects messages of a type with growing n, up to the last one: `increasing SAY 0 11`.
func (r *run) increasing(a *arguments) error {
	typ, n, last := a.word(), int64(a.number()), int64(a.number())
	for n < last {
		f, err := r.receive(typ, func(f *frame) bool { return f.typ == typ })
		if err != nil {
			return err
		}
		next, _ := lookup(f.message, "payload.n").(int64)
		if next <= n {
			return fmt.Errorf("payload.n is %d, after %d", next, n)
		}
		n = next
	}
	return nil
}

// sum expects messages of a type with an ID until their credits are enough, and not too many: `sum $ws:credit f 8..16`.
func (r *run) sum(a *arguments) error {
	typ, request := a.word(), r.frame(a.word())
	from, to := a.interval()
	total := 0
	for total < from {
		f, err := r.receive(typ, func(f *frame) bool { return f.typ == typ })
		if err != nil {
			return err
		}
		if f.id() != request.id() {
			return fmt.Errorf("meta.correlationId is %q, must be %q", f.id(), request.id())
		}
		credit, _ := lookup(f.message, "meta.credit").(int64)
		total += int(credit)
	}
	if total > to {
		return fmt.Errorf("the credits are %d together, must be at most %d", total, to)
	}
	return nil
}

func (r *run) frame(name string) *frame {
	f := r.frames[name]
	if f == nil {
		panic(scriptError("no message has the name " + name))
	}
	return f
}

// replies answers a message: `reply f $ws:subscribed {"topic":"room/go"}`.
func (r *run) replies(a *arguments) error {
	f, typ := r.frame(a.word()), a.word()
	r.connection().reply(f, typ, payload(a))
	return nil
}

// payload reads an object, and returns nil, not an empty object, if none follows.
func payload(a *arguments) any {
	if object := a.object(); object != nil {
		return object
	}
	return nil
}

// answer sends the reply to an ASK.
func (r *run) answer(a *arguments) error {
	f := r.frame(a.word())
	n, _ := lookup(f.message, "payload.n").(int64)
	r.connection().reply(f, "ANSWER", map[string]any{"n": n})
	return nil
}

// ack acknowledges a message.
func (r *run) ack(a *arguments) error {
	r.connection().reply(r.frame(a.word()), "$ws:ack", nil)
	return nil
}

// reject answers a message with an error: `reject f RESOURCE_EXHAUSTED {"retryable":true}`.
func (r *run) reject(a *arguments) error {
	f := r.frame(a.word())
	all := map[string]any{"code": a.word(), "retryable": false}
	maps.Copy(all, a.pattern())
	r.connection().reply(f, "RPC_ERROR", all)
	return nil
}

// item sends an item of a stream: `item f 3`.
func (r *run) item(a *arguments) error {
	f := r.frame(a.word())
	r.connection().reply(f, "$ws:rpc-progress", map[string]any{"n": int64(a.number())})
	return nil
}

// push sends a message that answers none: `push $ws:goaway {} {"reconnectAfterMs":300}`, with meta and the payload.
func (r *run) push(a *arguments) error {
	typ, meta := a.word(), a.object()
	r.connection().send(typ, meta, payload(a))
	return nil
}

// publish sends a publication of the topic room/go with a position, whose n is the offset: `publish 18 {"throw":true}`.
func (r *run) publish(a *arguments) error {
	offset := int64(a.number())
	all := map[string]any{"n": offset}
	maps.Copy(all, a.pattern())
	r.connection().send("SAID", map[string]any{"topic": "room/go", "offset": offset}, all)
	return nil
}

// raw sends the rest of the line.
func (r *run) raw(a *arguments) error { r.connection().sendRaw(a.word()); return nil }

// cut ends the connection without a close frame.
func (r *run) cut(*arguments) error { r.connection().cut(); return nil }

// mute makes the server read and answer nothing more on the connection.
func (r *run) mute(*arguments) error { r.connection().mute(); return nil }

// shut sends a close frame: `shut 1012 {"code":"UNAVAILABLE"}`.
func (r *run) shut(a *arguments) error {
	code, reason := a.number(), ""
	if a.more() {
		reason = a.word()
	}
	r.connection().close(code, reason)
	return nil
}

// hasEnded expects that the client ends the connection, with a code if the step has one: `ended 1000`.
func (r *run) hasEnded(a *arguments) error {
	p := r.connection()
	select {
	case <-p.ended:
	case <-time.After(r.config.Limit):
		return fmt.Errorf("the client has not closed the connection")
	case <-r.stop():
		return r.broke()
	}
	if a.more() {
		if code := a.number(); int(p.code) != code {
			return fmt.Errorf("the client has closed the connection with %s, must be %d", strconv.Itoa(int(p.code)), code)
		}
	}
	return nil
}
