package rawclient

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// replies are the types that may answer the calls of the protocol, apart from RPC_ERROR.
var replies = map[string]string{
	"$ws:hello": "$ws:welcome", "$ws:auth": "$ws:authenticated", "$ws:subscribe": "$ws:subscribed",
	"$ws:unsubscribe": "$ws:unsubscribed", "$ws:resume": "$ws:resumed",
}

func reserved(kind string) bool {
	return strings.HasPrefix(kind, "$") || strings.HasPrefix(kind, "__") || kind == "ERROR" || kind == "RPC_ERROR"
}

// message checks and handles one message of the server.
func (k *conn) message(raw []byte) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	e, err := parse(raw)
	if err != nil {
		k.fail("a message is no envelope: %v: %.200s", err, raw)
		return
	}
	k.checkMeta(e)
	id := e.meta.CorrelationID
	switch {
	case strings.HasPrefix(id, "$ws:"):
		k.called(e)
	case e.kind == "$ws:ack":
		k.acked(id)
	case e.kind == "$ws:rpc-progress":
		k.progress(e)
	case id != "":
		k.answered(e)
	case reserved(e.kind):
		k.event(e)
	default:
		k.delivered(e)
	}
	k.leaveLocked()
}

// checkMeta checks that meta has what section 1 says, and nothing else.
func (k *conn) checkMeta(e envelope) {
	if e.kind == "__heartbeat_ack" {
		if !e.members["ts"] || len(e.members) != 1 {
			k.fail("the meta of __heartbeat_ack has %v", slices.Sorted(maps.Keys(e.members)))
		}
		return
	}
	if e.meta.Timestamp == nil {
		k.fail("%s has no timestamp", e.kind)
	}
	call := strings.HasPrefix(e.meta.CorrelationID, "$ws:") && e.kind != "$ws:abort"
	publication := e.meta.CorrelationID == "" && !reserved(e.kind)
	for name := range e.members {
		allowed := false
		switch name {
		case "timestamp", "correlationId":
			allowed = true
		case "timeoutMs":
			allowed = call && k.greet != notGreeted
		case "traceparent", "tracestate":
			allowed = call && k.greet != notGreeted && k.c.cfg.Trace
		case "topic", "offset":
			allowed = publication
		}
		if !allowed {
			k.fail("the meta of %s has %s", e.kind, name)
		}
	}
	if e.members["offset"] && (e.meta.Offset == 0 || e.meta.Topic == nil) {
		k.fail("%s has an offset that is 0, or no topic", e.kind)
	}
}

// acked handles the acknowledgment of a message.
func (k *conn) acked(id string) {
	o := k.open[id]
	if o == nil || !o.ack || o.Acked {
		k.fail("$ws:ack for %q, which does not wait for one", id)
		return
	}
	o.Acked = true
}

// progress handles an item of a stream, or progress of a call.
func (k *conn) progress(e envelope) {
	id := e.meta.CorrelationID
	o := k.open[id]
	if o == nil || o.event || replies[o.Type] != "" {
		k.fail("progress of %q: %s", id, k.why(id))
		return
	}
	if !bytes.Equal(e.payload, e.data) {
		k.fail("progress of %s has different values as data and payload", id)
	}
	if o.credits == 0 {
		k.fail("the stream %s has an item without a credit", id)
	} else if o.credits > 0 {
		o.credits--
	}
	o.Progress = append(o.Progress, e.payload)
}

// why says why no answer may have the ID.
func (k *conn) why(id string) string {
	switch state, ok := k.used[id]; {
	case !ok:
		return "the client has not used this ID"
	case state != "":
		return "it has been answered with " + state
	}
	return "it is an event or a call of the protocol"
}

// answered handles the final answer to a call, or the error of an event.
func (k *conn) answered(e envelope) {
	id := e.meta.CorrelationID
	o := k.open[id]
	if o == nil {
		k.fail("%s answers %q: %s", e.kind, id, k.why(id))
		return
	}
	delete(k.open, id)
	k.used[id] = e.kind
	expected := replies[o.Type]
	switch {
	case e.kind == "RPC_ERROR":
	case o.event:
		k.fail("%s answers the event %s (%s)", e.kind, id, o.Type)
	case expected != "" && e.kind != expected, expected == "" && reserved(e.kind) && (e.kind != "$ws:stream-end" || !o.stream):
		k.fail("%s answers %s", e.kind, o.Type)
	case o.ack && !o.Acked:
		k.fail("the reply to %s arrived without the acknowledgment", id)
	}
	if e.kind == "$ws:stream-end" && len(e.payload) > 0 {
		k.fail("$ws:stream-end has a payload")
	}
	o.Done, o.Reply, o.Payload, o.At = true, e.kind, e.payload, time.Now()
	if e.kind == "RPC_ERROR" {
		o.Err = checkError(e.payload, k.fail)
		k.checkSize(o)
	} else if limit := k.sizeLimit(o.Type); limit > 0 && o.size > limit {
		k.fail("%s with %d bytes was handled; the server announced %d", o.Type, o.size, limit)
	}
	k.settle(e, o)
}

// checkSize checks that only messages above the announced size are too big.
func (k *conn) checkSize(o *call) {
	var details struct {
		Kind  string `json:"kind"`
		Limit int    `json:"limit"`
	}
	limit := k.sizeLimit(o.Type)
	if limit == 0 || o.Err == nil || o.Err.Code != "RESOURCE_EXHAUSTED" || json.Unmarshal(o.Err.Details, &details) != nil {
		return
	}
	if details.Kind == "payload" && (o.size <= limit || details.Limit != limit) {
		k.fail("%s with %d bytes is too big for %d; the server announced %d", o.Type, o.size, details.Limit, limit)
	}
}

// sizeLimit returns the announced size of messages of the type; 0 before the welcome.
func (k *conn) sizeLimit(kind string) int {
	if limit, ok := k.welcome.MaxMessageBytesByType[kind]; ok {
		return limit
	}
	return k.welcome.MaxMessageBytes
}

// called handles a call of the server, or its abort (section 9).
func (k *conn) called(e envelope) {
	id := e.meta.CorrelationID
	state, known := k.asked[id]
	if e.kind == "$ws:abort" {
		if k.greet == notGreeted || !known || state == "aborted" {
			k.fail("$ws:abort for %q: known %v, %s", id, known, state)
		}
		k.asked[id] = "aborted"
		return
	}
	if known || reserved(e.kind) {
		k.fail("the server calls %s with the ID %q, known %v", e.kind, id, known)
		return
	}
	if k.greet == greeted && !e.members["timeoutMs"] {
		k.fail("the call %s of the server has no timeoutMs", e.kind)
	}
	k.asked[id] = "open"
	no := false
	kind, reply := "RPC_ERROR", any(Error{Code: "UNIMPLEMENTED", Message: "unknown type", Retryable: &no})
	if k.c.cfg.Answer != nil {
		kind, reply = k.c.cfg.Answer(e.kind, e.payload)
	}
	if kind != "" {
		k.anonymous++
		k.sendMeta(kind, reply, map[string]any{"correlationId": id})
	}
}

// retryable has the codes whose errors are always, or never, retryable.
var retryable = map[string]bool{
	"UNAUTHENTICATED": false, "PERMISSION_DENIED": false, "INVALID_ARGUMENT": false, "FAILED_PRECONDITION": false,
	"NOT_FOUND": false, "ALREADY_EXISTS": false, "UNIMPLEMENTED": false, "CANCELLED": false, "OUTCOME_UNKNOWN": false,
	"DEADLINE_EXCEEDED": true, "UNAVAILABLE": true, "ABORTED": true,
}

// checkError decodes and checks the payload of an error (section 4).
func checkError(payload json.RawMessage, fail func(string, ...any)) *Error {
	e := &Error{}
	if err := json.Unmarshal(payload, e); err != nil || e.Code == "" || e.Retryable == nil {
		fail("an error is malformed: %s", payload)
		return e
	}
	after, present := string(e.RetryAfterMs), len(e.RetryAfterMs) > 0
	always, fixed := retryable[e.Code]
	switch {
	case fixed && *e.Retryable != always:
		fail("an error has the wrong retryable: %s", payload)
	case e.Code == "RESOURCE_EXHAUSTED" && *e.Retryable == (after == "null"):
		fail("retryable contradicts retryAfterMs: %s", payload)
	case present && after != "null" && (!*e.Retryable || !digits(after)):
		fail("retryAfterMs of an error is wrong: %s", payload)
	case len(e.Details) > 0 && e.Details[0] != '{':
		fail("details of an error is no object: %s", payload)
	}
	return e
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// closeErrors has the codes of errors that the server closes with, by close code.
var closeErrors = map[int][]string{
	1007: {"INVALID_ARGUMENT"}, 1009: {"RESOURCE_EXHAUSTED"}, 1012: {"UNAVAILABLE"}, 4401: {"UNAUTHENTICATED"},
	1013: {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}, 4403: {"PERMISSION_DENIED"}, 4409: {"ABORTED"},
	4429: {"RESOURCE_EXHAUSTED"}, 4503: {"UNAVAILABLE"},
}

// closing checks a close frame (section 5).
func (k *conn) closing(end ending) {
	switch c := end.code; {
	case c >= 1000 && c <= 1003, c == 1005, c >= 1007 && c <= 1009, c >= 1011 && c <= 1013, c >= 3000 && c < 5000:
	default:
		k.fail("the close code %d is not permitted", c)
	}
	if !utf8.ValidString(end.reason) {
		k.fail("the reason of a close frame is not valid UTF-8")
	}
	var e Error
	if json.Unmarshal([]byte(end.reason), &e) != nil || e.Code == "" {
		return
	}
	if expected := closeErrors[end.code]; expected != nil && !slices.Contains(expected, e.Code) {
		k.fail("a connection was closed with %d and %s", end.code, end.reason)
	}
	if after := string(e.RetryAfterMs); after != "" && after != "null" && !digits(after) {
		k.fail("retryAfterMs of a close frame is wrong: %s", end.reason)
	}
}
