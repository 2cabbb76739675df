//go:build !js

package routertest_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type (
	known   struct{}
	unknown struct{}
	act     struct{ Do string }
	swap    struct{}
	list    struct{}
)

func (known) MessageType() string   { return "KNOWN" }
func (unknown) MessageType() string { return "UNKNOWN" }
func (act) MessageType() string     { return "ACT" }
func (swap) MessageType() string    { return "SWAP" }
func (list) MessageType() string    { return "LIST" }

// actingRouter has handlers that do what they are asked for.
func actingRouter() *router.Router {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m act) (known, error) {
		switch m.Do {
		case "publish":
			return known{}, r.Publish("news", unknown{})
		case "publish known":
			return known{}, r.Publish("news", known{})
		case "send":
			return known{}, ctx.Conn().Send(unknown{})
		case "call":
			_, err := router.Call[known](ctx, ctx.Conn(), unknown{})
			return known{}, err
		case "progress":
			return known{}, ctx.Progress(1)
		}
		return known{}, nil
	})
	router.RPC(r, func(*router.Context, swap) (known, error) { return known{}, nil }).Use(func(router.Handler) router.Handler {
		return func(ctx *router.Context) error {
			ctx.SetReply(unknown{})
			return nil
		}
	})
	router.Stream(r, func(ctx *router.Context, _ list) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			yield(1, nil)
			ctx.SetReply(unknown{})
		}
	})
	router.Topic(r, "news", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
	return r
}

func TestDial_UndeclaredMessagesFailTheTest(t *testing.T) {
	for do, want := range map[string]string{
		"publish":       "the message UNKNOWN is not declared; declare it with router.DeclareMessage, or in TopicOptions.Messages if it is published",
		"send":          "the message UNKNOWN is not declared; declare it with router.DeclareMessage, or in TopicOptions.Messages if it is published",
		"call":          "the call UNKNOWN to clients is not declared; declare it with router.DeclareCall",
		"progress":      "progress of ACT is not declared; set RouteDoc.Progress of its route",
		"reply":         `the reply UNKNOWN to SWAP is not the declared one ("KNOWN")`,
		"stream":        `the reply UNKNOWN to LIST is not the declared one ("")`,
		"publish known": "",
		"nothing":       "",
	} {
		for _, mode := range []string{"declares", "declares nothing", "is wrapped"} {
			t.Run(do+"/"+mode, func(t *testing.T) {
				failures := failuresOf(t, func(t testing.TB) {
					r := actingRouter()
					if mode != "declares nothing" {
						router.DeclareMessage[known](r)
					}
					var h http.Handler = r
					if mode == "is wrapped" {
						h = http.HandlerFunc(r.ServeHTTP)
					}
					doIt(routertest.Dial(t, h), do)
				})
				if want == "" || mode != "declares" {
					assert.Empty(t, failures)
					return
				}
				requireOneFailure(t, failures, want)
				assert.Contains(t, failures[0], "routertest: received {")
			})
		}
	}
}

// doIt makes the server send a message, and receives everything.
func doIt(conn *routertest.Conn, do string) {
	routertest.Subscribe(conn, "news")
	routertest.Handle(conn, func(unknown) (known, error) { return known{}, nil })
	if do == "stream" {
		routertest.ReceiveAnswer[unknown](routertest.Start(conn, list{}))
		return
	}
	if do == "reply" {
		routertest.ReceiveAnswer[unknown](routertest.Start(conn, swap{}))
		return
	}
	routertest.Call[known](conn, act{do})
	routertest.Unsubscribe(conn, "news") // publications have arrived before its answer
}

// A tooLow has the details of TOO_LOW.
type tooLow struct {
	Least int `json:"least"`
}

// TestDial_UndeclaredErrorsFailTheTest has a route that declares TOO_LOW, and one that declares nothing.
func TestDial_UndeclaredErrorsFailTheTest(t *testing.T) {
	answers := map[string]error{
		"declared":         &errors.Error{Code: "TOO_LOW", Details: tooLow{7}},
		"the same members": &errors.Error{Code: "TOO_LOW", Details: map[string]any{"least": 0}},
		"standard":         errors.Errorf(errors.NotFound, "there is none"),
		"other code":       errors.Errorf("FOO", "no"),
		"no details":       errors.Errorf("TOO_LOW", "no"),
		"other details":    &errors.Error{Code: "TOO_LOW", Details: map[string]any{"least": "7"}},
	}
	for do, want := range map[string]string{
		"declared": "", "the same members": "", "standard": "",
		"other code":    "the code FOO is not declared; RouteDoc.Errors and RouteDoc.ErrorDetails of ACT must have it",
		"no details":    "the details of TOO_LOW are not those of the declared routertest_test.tooLow: least is missing",
		"other details": "least must be an integer in range, not a string",
	} {
		for _, declares := range []bool{true, false} {
			t.Run(fmt.Sprint(do, "/", declares), func(t *testing.T) {
				failures := failuresOf(t, func(t testing.TB) {
					r := router.New(nil)
					route := router.RPC(r, func(_ *router.Context, m act) (known, error) { return known{}, answers[m.Do] })
					if declares {
						route.Doc(router.RouteDoc{ErrorDetails: map[errors.Code]any{"TOO_LOW": tooLow{}}})
					}
					_ = routertest.CallError(routertest.Dial(t, r), act{do})
				})
				if want == "" || !declares {
					assert.Empty(t, failures)
					return
				}
				requireOneFailure(t, failures, want)
			})
		}
	}
}

// TestDial_AnswersWithoutCorrelationIDAreDeclared sends a call as an event.
func TestDial_AnswersWithoutCorrelationIDAreDeclared(t *testing.T) {
	r := actingRouter()
	router.DeclareMessage[unknown](r)
	conn := routertest.Dial(t, r)
	conn.Send(act{})
	routertest.Receive[known](conn)
	assert.NoError(t, r.Shutdown(context.Background()))
}
