package wskit_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-go/penstock/router"
)

func TestWSKit_PlainClientAnswersCalls(t *testing.T) { runNode(t, "clientcalls.test.mjs", clientCalls) }

// clientCalls has a call whose handler calls the client that has sent it.
var clientCalls = feature{register: func(r *router.Router) {
	router.RPC(r, func(ctx *router.Context, m CallMe) (Answer, error) {
		wait := time.Duration(m.TimeoutMs) * time.Millisecond
		if wait == 0 {
			wait = time.Minute
		}
		brief, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		reply, err := router.Call[Pong](brief, ctx.Conn(), Ping{m.N})
		return Answer(reply), err
	})
}}

// CallMe makes the server send a Ping and answer with its reply.
type CallMe struct {
	N         int `json:"n"`
	TimeoutMs int `json:"timeoutMs"` // how long the server waits; 0: as long as for any call
}

func (CallMe) MessageType() string { return "CALL_ME" }

// A Ping is a call of the server, which clients answer with a Pong.
type Ping struct {
	N int `json:"n"`
}

func (Ping) MessageType() string { return "PING" }

type Pong struct {
	N int `json:"n"`
}

func (Pong) MessageType() string { return "PONG" }
