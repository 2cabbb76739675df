package aisdk_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
)

// TestHandler_ClosesForFramesThatCannotBeAnswered with 1008, and one that is too large with 1009.
func TestHandler_ClosesForFramesThatCannotBeAnswered(t *testing.T) {
	for text, code := range map[string]websocket.StatusCode{
		``:                             websocket.StatusPolicyViolation,
		`{`:                            websocket.StatusPolicyViolation,
		`[]`:                           websocket.StatusPolicyViolation,
		`null`:                         websocket.StatusPolicyViolation,
		`{"type":"send"}`:              websocket.StatusPolicyViolation,
		`{"type":"x","requestId":7}`:   websocket.StatusPolicyViolation,
		`{"type":"x","requestId":""}`:  websocket.StatusPolicyViolation,
		`{"requestId":null}`:           websocket.StatusPolicyViolation,
		`"` + strings.Repeat("x", 1e4): websocket.StatusMessageTooBig,
		`{"type":"x","requestId":"` + strings.Repeat("x", 257) + `"}`: websocket.StatusPolicyViolation,
	} {
		synctest.Test(t, func(t *testing.T) {
			n := nodes(t, 1, aisdk.Options{Limits: aisdk.Limits{FrameBytes: 1000}})[0]
			p := n.open(t, "ann")
			go func() { // an error if the server closes meanwhile
				_ = p.ws.Write(t.Context(), websocket.MessageText, []byte(text))
			}()
			assert.Equal(t, code, p.closed(), "%.50s", text)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
		require.NoError(t, p.ws.Write(t.Context(), websocket.MessageBinary, []byte(abort("1"))))
		assert.Equal(t, websocket.StatusPolicyViolation, p.closed(), "a binary message")
		p = nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{Items: 1, EveryMs: 1000, FailAfter: -1}))
		p.write(resume("1", "ann-1"))
		assert.Equal(t, websocket.StatusPolicyViolation, p.closed(), "a requestId that is in use")
	})
}

// TestHandler_AnswersInvalidRequests and serves the next one.
func TestHandler_AnswersInvalidRequests(t *testing.T) {
	valid := submit("1", "ann-1", "m", script{})
	for text, want := range map[string]string{
		`{"type":"stop","requestId":"1"}`:                                             "type",
		`{"requestId":"1"}`:                                                           "type",
		`{"type":7,"requestId":"1"}`:                                                  "type",
		`{"type":"resume","requestId":"1","headers":{},"body":{}}`:                    "id",
		`{"type":"resume","requestId":"1","id":null,"headers":{},"body":{}}`:          "id",
		`{"type":"resume","requestId":"1","id":"ann-1","lastSequence":-1}`:            "lastSequence",
		`{"type":"resume","requestId":"1","id":"ann-1","lastSequence":"1"}`:           "lastSequence",
		`{"type":"resume","requestId":"1","id":"ann-1","headers":7}`:                  "headers",
		`{"type":"send","requestId":"1","id":"ann-1"}`:                                "trigger",
		strings.Replace(valid, `"submit-message"`, `"other"`, 1):                      "trigger",
		strings.Replace(valid, `"headers":{}`, `"headers":{"a":7}`, 1):                "headers",
		strings.Replace(valid, `"headers":{}`, `"headers":null`, 1):                   "headers",
		strings.Replace(valid, `"body":{`, `"body":[],"x":{`, 1):                      "body",
		strings.Replace(valid, `"body":{`, `"messageId":7,"body":{`, 1):               "messageId",
		strings.Replace(valid, `"messages"`, `"m"`, 1):                                "messages",
		strings.Replace(valid, `"messages":[`, `"messages":[],"m":[`, 1):              "messages",
		strings.Replace(valid, `"role":"user"`, `"role":"system"`, 1):                 "messages",
		strings.Replace(valid, `"id":"m"`, `"id":""`, 1):                              "messages",
		strings.Replace(valid, `[{"type":"text","text":"hello"}]`, `[]`, 1):           "messages",
		strings.Replace(valid, `"ann-1"`, `"ann-\u0000"`, 1):                          "topic",
		strings.Replace(valid, `"ann-1"`, `"`+strings.Repeat("ann-", 100)+`"`, 1):     "id",
		strings.Replace(valid, `"send"`, `"send","requestId":"1"`, 1) + ` {"x":"y"} `: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
			p.write(text)
			if want == "" { // two values are no frame
				assert.Equal(t, websocket.StatusPolicyViolation, p.closed())
				return
			}
			a := p.read("1")
			assert.Equal(t, "error", a.end.Type, text)
			assert.Contains(t, a.end.ErrorText, want, text)
			p.write(valid)
			assert.Equal(t, "end", p.read("1").end.Type)
		})
	}
}
