package rawclient_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A script is what a server does that breaks one promise: a string is a message, bytes are bytes, and a
// function lets the client do something. The IDs of a client are c1, c2, and so on; c1 is that of the
// greeting, unless the client is silent.
type script struct {
	want   string // a part of the only violation
	silent bool   // the client does not greet
	plain  bool   // the client has no session
	steps  []any
}

// A reconnect is a step: the connection is cut, and the script goes on with the next one.
type reconnect struct{}

// text is a message of the server. extra are members of meta and begin with a comma.
func text(kind, extra, payload string) string {
	if payload != "" {
		payload = `,"payload":` + payload
	}
	return fmt.Sprintf(`{"type":%q,"meta":{"timestamp":1%s}%s}`, kind, extra, payload)
}

func answer(id, kind, payload string) string { return text(kind, `,"correlationId":"`+id+`"`, payload) }

func publication(topic string, offset int) string {
	return text("SAID", fmt.Sprintf(`,"topic":%q,"offset":%d`, topic, offset), `{}`)
}

const (
	welcomePayload = `{"version":1,"connId":"M","pingIntervalMs":25000,"pongTimeoutMs":10000,"maxMessageBytes":200,"callTimeoutMs":30000,"concurrency":64%s}`
	session        = `,"session":{"token":"t1","resumeWithinMs":1000}`
)

var (
	hi      = answer("c1", "$ws:welcome", fmt.Sprintf(welcomePayload, ""))
	hiAgain = answer("c1", "$ws:welcome", fmt.Sprintf(welcomePayload, session))
)

// Verbs of scripts. Each uses the next ID.
func call(c *rawclient.Client) { c.Call("GET", nil, rawclient.CallOptions{}) }

func stream(c *rawclient.Client) {
	one := int64(1)
	c.Call("ROWS", nil, rawclient.CallOptions{Stream: true, Credit: &one})
}
func event(c *rawclient.Client)    { c.Event("SAY", nil, false) }
func ackCall(c *rawclient.Client)  { c.Call("GET", nil, rawclient.CallOptions{Ack: true}) }
func ackEvent(c *rawclient.Client) { c.Event("SAY", nil, true) }
func unsub(c *rawclient.Client)    { c.Unsubscribe("a") }
func auth(c *rawclient.Client)     { c.Auth("x") }
func sub(presence, positions, state bool) func(*rawclient.Client) {
	return func(c *rawclient.Client) {
		c.Subscribe("a", rawclient.SubscribeOptions{Presence: presence, Positions: positions, State: state})
	}
}

func big(n int) func(*rawclient.Client) {
	return func(c *rawclient.Client) { c.Call("GET", string(make([]byte, n)), rawclient.CallOptions{}) }
}

func quiet(c *rawclient.Client) {
	time.Sleep(31 * time.Second)
	c.Quiet()
}

func errorPayload(code, rest string) string {
	return fmt.Sprintf(`{"code":%q,"retryable":%s}`, code, rest)
}

// at is the answer to a subscription with positions.
func at(id string, offset int, rest string) string {
	return answer(id, "$ws:subscribed", fmt.Sprintf(`{"topic":"a","epoch":"E","offset":%d%s}`, offset, rest))
}

func moved(rest string) string {
	return text("$ws:position", "", `{"topic":"a","epoch":"E",`+rest+`}`)
}

func closing(code int, reason string) []byte {
	return wsframe.AppendClose(nil, wsframe.Server, code, reason)
}

// scripted serves the script to a client, and returns what it reports.
func scripted(t *testing.T, s script) []string {
	t.Helper()
	var v violations
	server := make(chan net.Conn, 1)
	c := rawclient.New(rawclient.Config{
		Dial: dialer(func() http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _, _ := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // helpers_test.go
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
					"Sec-WebSocket-Accept: "+wsframe.AcceptKey(r.Header.Get("Sec-WebSocket-Key"))+"\r\n\r\n")
				server <- conn
				_, _ = io.Copy(io.Discard, conn)
			})
		}),
		Rand: rand.New(rand.NewPCG(1, 2)), Greet: !s.silent, Session: !s.silent && !s.plain, Report: v.report, //nolint:gosec // a test
	})
	conn := <-server
	synctest.Wait()
	for _, step := range s.steps {
		switch step := step.(type) {
		case string:
			_, _ = conn.Write(wsframe.AppendFrame(nil, wsframe.Server, wsframe.Text, []byte(step)))
		case []byte:
			_, _ = conn.Write(step)
		case func(*rawclient.Client):
			step(c)
		case reconnect:
			_ = conn.Close()
			conn = <-server
		}
		synctest.Wait()
	}
	go c.Close(1000)
	synctest.Wait()
	_ = conn.Close()
	c.Close(1000)
	return v.list()
}

func TestClient_ReportsEachViolation(t *testing.T) {
	groups := map[string][]script{
		"envelope": envelopes, "answers": answers, "server": serverMessages, "frames": frames,
		"topics": topics, "positions": positions, "state": states, "presence": presences, "sizes": sizes, "sessions": sessions,
	}
	for group, scripts := range groups {
		for i, s := range scripts {
			t.Run(fmt.Sprintf("%s/%d_%s", group, i, s.want), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := scripted(t, s)
					if s.want == "" {
						assert.Empty(t, got)
					} else if assert.Len(t, got, 1) {
						assert.Contains(t, got[0], s.want)
					}
				})
			})
		}
	}
}

var envelopes = []script{
	{want: "", steps: []any{hiAgain, text("SAID", "", `{}`)}},
	{want: "no envelope", steps: []any{`{"type":`}},
	{want: "no envelope", steps: []any{`[]`}},
	{want: "text follows", steps: []any{text("SAID", "", "") + "x"}},
	{want: `"type" occurs twice`, steps: []any{`{"type":"A","type":"B","meta":{"timestamp":1}}`}},
	{want: `"timestamp" occurs twice`, steps: []any{text("SAID", `,"timestamp":2`, "")}},
	{want: "type is", steps: []any{`{"meta":{"timestamp":1}}`}},
	{want: "type is", steps: []any{`{"type":7,"meta":{"timestamp":1}}`}},
	{want: "meta", steps: []any{`{"type":"SAID"}`}},
	{want: "no timestamp", steps: []any{`{"type":"SAID","meta":{}}`}},
	{want: "meta", steps: []any{text("SAID", `,"offset":"x"`, "")}},
	{want: "the meta of SAID has credit", steps: []any{text("SAID", `,"credit":1`, "")}},
	{want: "the meta of GOT has topic", steps: []any{call, text("GOT", `,"correlationId":"c2","topic":"a"`, "")}},
	{want: "too long", steps: []any{answer(string(make([]byte, 0))+fmt.Sprintf("%0129d", 1), "GOT", "")}},
	{want: "offset that is 0, or no topic", steps: []any{text("SAID", `,"offset":1`, "")}},
	{want: "$ws:nope without an ID is not known", steps: []any{text("$ws:nope", "", "")}},
	{want: "RPC_ERROR without an ID", steps: []any{text("RPC_ERROR", "", errorPayload("NOT_FOUND", "false"))}},
}

var answers = []script{
	{want: "", steps: []any{hi, call, answer("c2", "$ws:rpc-progress", "1")[:len(answer("c2", "$ws:rpc-progress", "1"))-1] + `,"data":1}`, answer("c2", "GOT", "")}},
	{want: "has not used this ID", steps: []any{answer("x", "GOT", "")}},
	{want: "answered with GOT", steps: []any{call, answer("c2", "GOT", ""), answer("c2", "GOT", "")}},
	{want: "answered with GOT", steps: []any{call, answer("c2", "GOT", ""), answer("c2", "$ws:rpc-progress", "1")}},
	{want: "different values", steps: []any{call, answer("c2", "$ws:rpc-progress", "1")}},
	{want: "GOT answers the event", steps: []any{event, answer("c2", "GOT", "")}},
	{want: "answered with RPC_ERROR", steps: []any{event, answer("c2", "RPC_ERROR", errorPayload("NOT_FOUND", "false")), answer("c2", "RPC_ERROR", errorPayload("NOT_FOUND", "false"))}},
	{want: "progress of", steps: []any{event, answer("c2", "$ws:rpc-progress", "1")}},
	{want: "$ws:welcome answers GET", steps: []any{call, answer("c2", "$ws:welcome", "{}")}},
	{want: "GOT answers $ws:hello", steps: []any{answer("c1", "GOT", fmt.Sprintf(welcomePayload, ""))}},
	{want: "$ws:stream-end answers GET", steps: []any{call, answer("c2", "$ws:stream-end", "")}},
	{want: "stream-end has a payload", steps: []any{stream, answer("c2", "$ws:stream-end", "1")}},
	{want: "without a credit", steps: []any{stream, item("c2"), item("c2")}},
	{want: "does not wait for one", steps: []any{call, answer("c2", "$ws:ack", "")}},
	{want: "does not wait for one", steps: []any{ackEvent, answer("c2", "$ws:ack", ""), answer("c2", "$ws:ack", "")}},
	{want: "without the acknowledgment", steps: []any{ackCall, answer("c2", "GOT", "")}},
	{want: "ERROR answers no message", steps: []any{text("ERROR", "", errorPayload("NOT_FOUND", "false"))}},
	{want: "malformed", steps: []any{call, answer("c2", "RPC_ERROR", `{"code":"NOT_FOUND"}`)}},
	{want: "wrong retryable", steps: []any{call, answer("c2", "RPC_ERROR", errorPayload("NOT_FOUND", "true"))}},
	{want: "contradicts", steps: []any{call, answer("c2", "RPC_ERROR", errorPayload("RESOURCE_EXHAUSTED", `true,"retryAfterMs":null`))}},
	{want: "retryAfterMs of an error", steps: []any{call, answer("c2", "RPC_ERROR", errorPayload("INTERNAL", `false,"retryAfterMs":5`))}},
	{want: "retryAfterMs of an error", steps: []any{call, answer("c2", "RPC_ERROR", errorPayload("UNAVAILABLE", `true,"retryAfterMs":1.5`))}},
	{want: "details", steps: []any{call, answer("c2", "RPC_ERROR", errorPayload("NOT_FOUND", `false,"details":1`))}},
	{want: "has no answer", steps: []any{hi, call, quiet}},
	{want: "neither an acknowledgment", steps: []any{hi, ackEvent, quiet}},
	{want: "must be refused", steps: []any{func(c *rawclient.Client) { c.Refused([]byte("{")) }, quiet}},
	{want: "heartbeats", steps: []any{(*rawclient.Client).Heartbeat, quiet}},
}

func item(id string) string {
	return `{"type":"$ws:rpc-progress","meta":{"timestamp":1,"correlationId":"` + id + `"},"data":1,"payload":1}`
}

var serverMessages = []script{
	{want: "no timeoutMs", steps: []any{hi, answer("$ws:1", "ASK", "")}},
	{want: "ASK has timeoutMs", silent: true, steps: []any{text("ASK", `,"correlationId":"$ws:1","timeoutMs":5`, "")}},
	{want: "ASK has traceparent", steps: []any{text("ASK", `,"correlationId":"$ws:1","timeoutMs":5,"traceparent":"x"`, "")}},
	{want: "known true", steps: []any{answer("$ws:1", "ASK", ""), answer("$ws:1", "ASK", "")}},
	{want: "the server calls $ws:hello", steps: []any{answer("$ws:1", "$ws:hello", "")}},
	{want: "known false", steps: []any{answer("$ws:1", "$ws:abort", "")}},
	{want: "aborted", steps: []any{answer("$ws:1", "ASK", ""), answer("$ws:1", "$ws:abort", ""), answer("$ws:1", "$ws:abort", "")}},
	{want: "known true", silent: true, steps: []any{answer("$ws:1", "ASK", ""), answer("$ws:1", "$ws:abort", "")}},
	{want: "was not sent", steps: []any{`{"type":"__heartbeat_ack","meta":{"ts":1}}`}},
	{want: "__heartbeat_ack has", steps: []any{(*rawclient.Client).Heartbeat, `{"type":"__heartbeat_ack","meta":{"timestamp":1}}`}},
	{want: "$ws:goaway before the greeting", silent: true, steps: []any{text("$ws:goaway", "", `{"reconnectAfterMs":1000}`)}},
	{want: "$ws:goaway is malformed", steps: []any{text("$ws:goaway", "", `{}`)}},
	{want: "before the greeting", silent: true, steps: []any{text("$ws:identity-expiring", "", `{"expiresInMs":1}`)}},
	{want: "$ws:identity-expiring is malformed", steps: []any{text("$ws:identity-expiring", "", `{"expiresInMs":0}`)}},
	{want: "$ws:authenticated is malformed", steps: []any{auth, answer("c2", "$ws:authenticated", `{"expiresInMs":0}`)}},
	{want: "$ws:welcome is malformed", steps: []any{answer("c1", "$ws:welcome", `{}`)}},
	{want: "no token, or no time", steps: []any{answer("c1", "$ws:welcome", fmt.Sprintf(welcomePayload, `,"session":{"token":"x"}`))}},
}

var frames = []script{
	{want: "", steps: []any{closing(4000, "bye")}},
	{want: "reserved bit", steps: []any{[]byte{0xc1, 0}}},
	{want: "masked", steps: []any{[]byte{0x81, 0x80}}},
	{want: "control frame", steps: []any{[]byte{0x09, 0}}},
	{want: "control frame", steps: []any{[]byte{0x89, 126}}},
	{want: "reserved opcode", steps: []any{[]byte{0x83, 0}}},
	{want: "longer than anything", steps: []any{[]byte{0x81, 127, 1, 0, 0, 0, 0, 0, 0, 0}}},
	{want: "continues none", steps: []any{[]byte{0x80, 0}}},
	{want: "begins inside another", steps: []any{[]byte{0x01, 0}, []byte{0x81, 0}}},
	{want: "binary message", steps: []any{wsframe.AppendFrame(nil, wsframe.Server, wsframe.Binary, []byte(text("SAID", "", "")))}},
	{want: "not valid UTF-8", steps: []any{text("SAID", "", "\"\xff\"")}},
	{want: "pong answers no ping", steps: []any{wsframe.AppendFrame(nil, wsframe.Server, wsframe.Pong, []byte("x"))}},
	{want: "has one byte", steps: []any{[]byte{0x88, 1, 3}}},
	{want: "close code 1006", steps: []any{closing(1006, "")}},
	{want: "close code 5000", steps: []any{closing(5000, "")}},
	{want: "reason of a close frame is not", steps: []any{[]byte{0x88, 3, 3, 232, 0xff}}},
	{want: "closed with 1012", steps: []any{closing(1012, `{"code":"NOT_FOUND"}`)}},
	{want: "retryAfterMs of a close", steps: []any{closing(1012, `{"code":"UNAVAILABLE","retryAfterMs":-1}`)}},
	{want: "follow the close frame", steps: []any{append(closing(1000, ""), 0x89, 0)}},
}

var topics = []script{
	{want: "", steps: []any{hiAgain, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a"}`), text("SAID", `,"topic":"a"`, "")}},
	{want: "SAID has a topic before the greeting", silent: true, steps: []any{text("SAID", `,"topic":"a"`, "")}},
	{want: "to which the client is not subscribed", steps: []any{hiAgain, text("SAID", `,"topic":"a"`, "")}},
	{want: "whose subscription has ended", steps: []any{hi, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a"}`), unsub, answer("c3", "$ws:unsubscribed", `{"topic":"a"}`), text("SAID", `,"topic":"a"`, "")}},
	{want: "whose subscription has ended", steps: []any{hi, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a"}`), text("$ws:unsubscribed", "", `{"topic":"a"}`), text("SAID", `,"topic":"a"`, "")}},
	{want: "has the payload", steps: []any{sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"b"}`)}},
	{want: "$ws:subscribed is malformed", steps: []any{sub(true, false, false), answer("c2", "$ws:subscribed", `{"topic":"a","members":5}`)}},
	{want: "has the payload", steps: []any{unsub, answer("c2", "$ws:unsubscribed", `{}`)}},
	{want: "$ws:subscribed is malformed", steps: []any{text("$ws:subscribed", "", `{}`)}},
	{want: "without a session is notified", plain: true, steps: []any{hi, text("$ws:subscribed", "", `{"topic":"a"}`)}},
	{want: "$ws:unsubscribed before the greeting", silent: true, steps: []any{text("$ws:unsubscribed", "", `{"topic":"a"}`)}},
	{want: "complete, and cannot", steps: []any{hiAgain, text("$ws:unsubscribed", "", `{"topic":"a","error":`+errorPayload("UNAVAILABLE", "true")+`}`)}},
}

// withPositions begins a script whose client is at the offset 5.
func withPositions(steps ...any) []any {
	return append([]any{hiAgain, sub(false, true, false), at("c2", 5, `,"recovered":true`)}, steps...)
}

var positions = []script{
	{want: "", steps: withPositions(publication("a", 6), publication("a", 7), moved(`"offset":8`), moved(`"offset":10,"lost":{"from":9,"to":10}`), publication("a", 11))},
	{want: "offset 7, the position is 5", steps: withPositions(publication("a", 7))},
	{want: "offset 5, the position is 5", steps: withPositions(publication("a", 5))},
	{want: "has no position", steps: withPositions(text("SAID", `,"topic":"a"`, ""))},
	{want: "the client has no position", steps: []any{hiAgain, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a"}`), publication("a", 1)}},
	{want: "half a position", steps: []any{hi, sub(false, true, false), answer("c2", "$ws:subscribed", `{"topic":"a","epoch":"E"}`)}},
	{want: "without recovered", steps: []any{hi, sub(false, true, false), at("c2", 5, "")}},
	{want: "$ws:position is malformed", steps: withPositions(moved(`"lost":{}`))},
	{want: "of which the client has no position", steps: []any{hi, moved(`"offset":1`)}},
	{want: "for a publication of the client", steps: withPositions(moved(`"offset":7`))},
	{want: "loses 7 to 8", steps: withPositions(moved(`"offset":8,"lost":{"from":7,"to":8}`))},
	{want: "loses 6 to 7", steps: withPositions(moved(`"offset":8,"lost":{"from":6,"to":7}`))},
	{want: "has the epoch F", steps: withPositions(text("$ws:position", "", `{"topic":"a","epoch":"F","offset":6}`))},
	{want: "ends the epoch D", steps: withPositions(text("$ws:position", "", `{"topic":"a","epoch":"F","offset":5,"ended":{"epoch":"D","offset":9}}`))},
	{want: "without a reason", steps: withPositions(text("$ws:position", "", `{"topic":"a","epoch":"F","offset":7,"ended":{"epoch":"E","offset":9}}`))},
	{want: "", steps: withPositions(text("$ws:position", "", `{"topic":"a","epoch":"F","offset":4,"ended":{"epoch":"E","offset":4}}`), publication("a", 5))},
	{want: "", steps: withPositions(text("$ws:position", "", `{"topic":"a","epoch":"F","offset":40,"reset":true}`), publication("a", 41))},
}

var states = []script{
	{want: "", steps: inState(`,"state":2`, publication("a", 2), publication("a", 5), publication("a", 6))},
	{want: "", steps: inState(`,"state":1,"more":true`, publication("a", 4), publication("a", 6), publication("a", 2), text("$ws:state", "", `{"topic":"a"}`), publication("a", 7))},
	{want: "has no state", steps: inState("")},
	{want: "has not asked for", steps: []any{hi, sub(false, true, false), at("c2", 5, `,"recovered":true,"state":0`)}},
	{want: "does not ascend", steps: inState(`,"state":2`, publication("a", 2), publication("a", 2))},
	{want: "precedes 1 of its state", steps: inState(`,"state":1`, publication("a", 6))},
	{want: "offset 3, the position is 5", steps: inState(`,"state":1`, publication("a", 2), publication("a", 3))},
	{want: "$ws:state of", steps: inState(`,"state":0`, text("$ws:state", "", `{"topic":"a"}`))},
	{want: "$ws:state of", steps: inState(`,"state":1,"more":true`, text("$ws:state", "", `{"topic":"a"}`))},
	{want: "the position is 5", steps: inState(`,"state":0,"more":true`, text("$ws:state", "", `{"topic":"a"}`), publication("a", 3))},
}

func inState(rest string, steps ...any) []any {
	return append([]any{hiAgain, sub(false, true, true), at("c2", 5, `,"recovered":true`+rest)}, steps...)
}

func present(steps ...any) []any {
	return append([]any{hiAgain, sub(true, false, false), answer("c2", "$ws:subscribed", `{"topic":"a","members":[{"connId":"M"}]}`)}, steps...)
}

func change(joined, left string) string {
	return text("$ws:presence", "", `{"topic":"a","joined":[`+joined+`],"left":[`+left+`]}`)
}

var presences = []script{
	{want: "", steps: present(change(`{"connId":"N"}`, ``), change(`{"connId":"N","info":"x"}`, `{"connId":"N"}`), change(``, `{"connId":"N"}`))},
	{want: "has not joined", steps: present(change(``, `{"connId":"N"}`))},
	{want: `"M" joins "a" twice`, steps: present(change(`{"connId":"M"}`, ``))},
	{want: "has no connId", steps: present(change(`{}`, ``))},
	{want: "has 0 members", steps: present(change(``, ``))},
	{want: "has 257 members", steps: present(change(many(257), ``))},
	{want: "has 258 members", steps: present(change(many(128), ``), change(`{"connId":"new"}`+","+many(128), many(128)+`,{"connId":"M"}`))},
	{want: "a message has 257 members", steps: []any{hi, sub(true, false, false), answer("c2", "$ws:subscribed", `{"topic":"a","members":[`+many(257)+`]}`)}},
	{want: "$ws:presence is malformed", steps: present(text("$ws:presence", "", `{"topic":"a"}`))},
	{want: "the client has no members", steps: []any{hi, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a"}`), change(`{"connId":"N"}`, ``)}},
	{want: "the client has no members", steps: present(unsub, answer("c3", "$ws:unsubscribed", `{"topic":"a"}`), change(`{"connId":"N"}`, ``))},
	{want: "has not asked for", steps: []any{hi, sub(false, false, false), answer("c2", "$ws:subscribed", `{"topic":"a","members":[]}`)}},
}

func many(n int) string {
	list := ""
	for i := range n {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"connId":"k%d"}`, i)
	}
	return list
}

// resuming begins a script with a client at the offset 5 that has sent $ws:hello as c3 and $ws:resume as c4
// on another connection.
func resuming(steps ...any) []any {
	return append(withPositions(reconnect{}, answer("c3", "$ws:welcome", fmt.Sprintf(welcomePayload, ""))), steps...)
}

func resumed(member, token, topics string) string {
	return answer("c4", "$ws:resumed", fmt.Sprintf(`{"session":{"token":%q,"resumeWithinMs":9},"memberId":%q,"topics":[%s]}`, token, member, topics))
}

var sessions = []script{
	{want: "", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"E","offset":5,"recovered":true}`), publication("a", 6))},
	{want: "", steps: resuming(publication("", 3), resumed("M", "t2", `{"topic":"a","epoch":"E","offset":9,"recovered":false}`), publication("a", 10))},
	{want: "", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"F","offset":4,"recovered":true,"ended":{"epoch":"E","offset":4}}`), publication("a", 5))},
	{want: "", steps: resuming(answer("c4", "RPC_ERROR", errorPayload("NOT_FOUND", "false")), answer("c5", "$ws:welcome", fmt.Sprintf(welcomePayload, session)))},
	{want: "of another member", steps: resuming(resumed("N", "t2", `{"topic":"a","epoch":"E","offset":5,"recovered":true}`))},
	{want: "has not changed", steps: resuming(resumed("M", "t1", `{"topic":"a","epoch":"E","offset":5,"recovered":true}`))},
	{want: "no token", steps: resuming(resumed("M", "", `{"topic":"a","epoch":"E","offset":5,"recovered":true}`))},
	{want: "does not answer the topic", steps: resuming(resumed("M", "t2", ""))},
	{want: "a topic twice", steps: resuming(resumed("M", "t2", `{"topic":"a","error":`+errorPayload("NOT_FOUND", "false")+`},{"topic":"a"}`))},
	{want: "is recovered from 6 of E, the client had 5", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"E","offset":6,"recovered":true}`))},
	{want: "is recovered from 5 of F", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"F","offset":5,"recovered":true}`))},
	{want: "its epoch has ended at 4", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"F","offset":5,"recovered":true,"ended":{"epoch":"E","offset":4}}`))},
	{want: "which was not presented", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"E","offset":5,"recovered":true},{"topic":"b","epoch":"E","offset":5,"recovered":true}`))},
	{want: "the position is 5", steps: resuming(resumed("M", "t2", `{"topic":"a","epoch":"E","offset":5,"recovered":true}`), publication("a", 7))},
	{want: "wrong retryable", steps: resuming(resumed("M", "t2", `{"topic":"a","error":`+errorPayload("NOT_FOUND", "true")+`}`))},
	{want: "before the greeting is answered", steps: withPositions(reconnect{}, publication("b", 6))},
	{want: "the connection is M2 and was M", steps: []any{hi, (*rawclient.Client).Greet, answer("c2", "$ws:welcome", `{"connId":"M2","pingIntervalMs":1000,"pongTimeoutMs":1000,"maxMessageBytes":1,"callTimeoutMs":1,"concurrency":1}`)}},
	{want: "has a state, and is recovered", steps: inState(`,"state":0`, reconnect{}, answer("c3", "$ws:welcome", fmt.Sprintf(welcomePayload, "")), resumed("M", "t2", `{"topic":"a","epoch":"E","offset":5,"recovered":true,"state":0}`))},
}

var sizes = []script{
	{want: "was handled; the server announced 200", steps: []any{hi, big(200), answer("c2", "GOT", "")}},
	{want: "too big for 200", steps: []any{hi, big(1), answer("c2", "RPC_ERROR", tooBig(200))}},
	{want: "too big for 100", steps: []any{hi, big(200), answer("c2", "RPC_ERROR", tooBig(100))}},
	{want: "", steps: []any{hi, big(200), answer("c2", "RPC_ERROR", tooBig(200))}},
}

func tooBig(limit int) string {
	return fmt.Sprintf(`{"code":"RESOURCE_EXHAUSTED","details":{"kind":"payload","observed":1,"limit":%d},"retryable":false,"retryAfterMs":null}`, limit)
}
