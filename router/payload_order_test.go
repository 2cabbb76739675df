package router_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// texts keep each JSON text that they are decoded from.
type texts []string

func (all *texts) UnmarshalJSON(text []byte) error {
	*all = append(*all, string(text))
	return nil
}

// A Log is a message whose decoding shows how often it was decoded.
type Log struct {
	Texts texts `json:"texts"`
	N     int   `json:"n"`
}

func (Log) MessageType() string { return "LOG" }

// A Linked is a Log that is received by pointer.
type Linked struct{ Log }

func (*Linked) MessageType() string { return "LINKED" }

// TestDecode_WhateverFollowsThePayload sends envelopes of which the JSON library can read the payload before
// the rest is validated, and others. Only valid ones are accepted, and their payload is decoded once.
func TestDecode_WhateverFollowsThePayload(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	answer := func(m Log) (Log, error) { return Log{Texts: texts{}, N: m.N*10 + len(m.Texts)}, nil }
	router.RPC(r, func(_ *router.Context, m Log) (Log, error) { return answer(m) })
	router.RPC(r, func(_ *router.Context, m *Linked) (Log, error) { return answer(m.Log) })
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const decoded = `"payload":{"texts":[],"n":71}`
	for members, want := range map[string]string{
		`"payload":{"texts":1,"n":7}`:                      decoded,
		`"payload": {"texts":1,"n":7} `:                    decoded,
		`"payload":{"texts":1,"n":7},"x":{}`:               decoded,
		`"x":{},"payload":{"texts":1,"n":7}`:               decoded,
		`"payload":{"n":7,"texts":"}"}`:                    decoded,
		`"payload":{"texts":1,"n":7},"payload":{"n":8}`:    `duplicate key`,
		`"payload":{"texts":1,"n":7},"type":"LOG"`:         `duplicate key`,
		`"payload":{"texts":1,"n":7},"meta":{}`:            `duplicate key`,
		`"payload":{"texts":1,"n":7},`:                     `not valid JSON`,
		`"payload":{"texts":1,"n":7}}`:                     `not valid JSON`,
		`"payload":{"texts":1,"n":7`:                       `ends too early`,
		`"payload":`:                                       `not valid JSON`,
		`"payload":{"texts":1,"n":true}`:                   `n must be an integer in range, not a boolean`,
		`"payload":{"texts":1,"n":true},"x":1`:             `n must be an integer in range, not a boolean`,
		`"payload":{"texts":1,"n":true},"x"`:               `not valid JSON`,
		`"payload":{"texts":1,"n":7,"n":7}`:                `must not occur twice`,
		`"x":1`:                                            `payload is missing`,
		`"payload":{"x":` + deep(62) + `,"n":7,"texts":1}`: decoded,
		`"payload":{"x":` + deep(63) + `,"n":7,"texts":1}`: `nested deeper than 64 levels`,
	} {
		for _, head := range []string{
			`"type":"LOG","meta":{"correlationId":"c"},`, `"meta":{"correlationId":"c"},"type":"LOG",`, `"type":"LINKED","meta":{"correlationId":"c"},`,
		} {
			ws := dialServer(t, server)
			write(t, ws, websocket.MessageText, "{"+head+members+"}")
			assert.Contains(t, read(t, ws), want, "%s%s", head, members)
			require.NoError(t, ws.CloseNow())
		}
	}
}
