package router_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// exchange sends texts to a router and prints the payload of what comes back.
func exchange(r *router.Router, texts ...string) {
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ws.CloseNow()
	for _, text := range texts {
		if err := ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			fmt.Println(err)
			return
		}
		_, reply, err := ws.Read(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(payloadOf(reply))
	}
}

func Example() {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) {
		return Echoed(m), nil
	})
	router.On(r, func(ctx *router.Context, m Say) error {
		return ctx.Send(m)
	})
	exchange(r,
		`{"type":"ECHO","meta":{"correlationId":"1"},"payload":{"n":7}}`,
		`{"type":"SAY","payload":{"room":"go","text":"hi"}}`,
		`{"type":"SAY","payload":{"room":"go","text":""}}`,
	)
	// Output:
	// {"n":7}
	// {"room":"go","text":"hi"}
	// {"code":"INVALID_ARGUMENT","message":"text must not be empty","details":{"field":"text","reason":"must not be empty"},"retryable":false}
}

// The first middleware is the outermost; a route's own is the innermost.
func ExampleRouter_Use() {
	trace := func(name string) router.Middleware {
		return func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				fmt.Println("into", name, ctx.Type())
				defer fmt.Println("out of", name)
				return next(ctx)
			}
		}
	}
	r := router.New(nil)
	r.Use(trace("outer"), trace("inner"))
	router.RPC(r, echo).Use(trace("route"))
	exchange(r, `{"type":"ECHO","payload":{"n":7}}`)
	// Output:
	// into outer ECHO
	// into inner ECHO
	// into route ECHO
	// out of route
	// out of inner
	// out of outer
	// {"n":7}
}

// An ingress function decides before the payload is read: here, guests may not
// echo, whatever it is.
func ExampleRouter_UseIngress() {
	r := router.New(nil)
	r.UseIngress(func(_ context.Context, in router.IngressContext) error {
		if in.Identity.UserID == "" {
			return errors.Errorf(errors.PermissionDenied, "log in before you send %s", in.Type)
		}
		return nil
	})
	router.RPC(r, echo)
	exchange(r, `{"type":"ECHO","payload":"of the wrong shape, but who looks?"}`)
	// Output: {"code":"PERMISSION_DENIED","message":"log in before you send ECHO","retryable":false}
}

func ExampleToken() {
	r := router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			if router.Token(req) != "sesame" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "what is the word?")
			}
			return router.Identity{UserID: "ali"}, nil
		},
	})
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ws?access_token=abracadabra", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 401 {"code":"UNAUTHENTICATED","message":"what is the word?","retryable":false}
}
