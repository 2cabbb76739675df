package router_test

import (
	"encoding/json"
	"iter"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type Reserved struct{}

func (Reserved) MessageType() string { return "$ws:mine" }

type Nameless struct{}

func (Nameless) MessageType() string { return "" }

// Wrapper is a message with a field of type T, which may not be encodable.
type Wrapper[T any] struct{ V T }

func (Wrapper[T]) MessageType() string { return "WRAPPER" }

func TestRegistration_AcceptsEncodableTypes(t *testing.T) {
	type tree struct {
		Children []tree
		Parent   *tree
		At       time.Time
		IP       netip.Addr
		Err      error `json:"-"`
		Any      any
		Bytes    [4]byte
		Names    map[netip.Addr]struct{ N uint8 }
		Numbers  map[int]map[string]any
		hidden   chan int
	}
	router.On(router.New(nil), func(_ *router.Context, m Wrapper[tree]) error { close(m.V.hidden); return nil })
	router.On(router.New(nil), func(*router.Context, Wrapper[json.RawMessage]) error { return nil })
}

func TestRegistration_MistakesPanicAtStartUp(t *testing.T) {
	say := func(*router.Context, Say) error { return nil }
	count := func(*router.Context, Echo) iter.Seq2[int, error] { return nil }
	on := func(r *router.Router) { router.On(r, func(*router.Context, Say) error { return nil }) }
	for _, tt := range []struct {
		name string
		do   func()
		want []string
	}{
		{"registered twice", func() { r := router.New(nil); on(r); on(r) }, []string{`"SAY" registered at `, "registration_test.go:", " and at "}},
		{"a pointer as a message", func() {
			router.On(router.New(nil), func(*router.Context, *Say) error { return nil })
		}, []string{"registration_test.go:", "*router_test.Say is a pointer; register messages by value, as router_test.Say"}},
		{"a pointer as a reply", func() {
			router.RPC(router.New(nil), func(*router.Context, Say) (*Echo, error) { return nil, nil })
		}, []string{"registration_test.go:", "*router_test.Echo is a pointer; register messages by value, as router_test.Echo"}},
		{"an interface as a message", func() {
			router.On(router.New(nil), func(*router.Context, router.Message) error { return nil })
		}, []string{"registration_test.go:", "router.Message is an interface"}},
		{"a reserved name", func() {
			router.On(router.New(nil), func(*router.Context, Reserved) error { return nil })
		}, []string{`"$ws:mine", which is reserved`}},
		{"no name", func() {
			router.On(router.New(nil), func(*router.Context, Nameless) error { return nil })
		}, []string{"must have 1 to 128 bytes"}},
		{"a reply with a reserved name", func() {
			router.RPC(router.New(nil), func(*router.Context, Echo) (Reserved, error) { return Reserved{}, nil })
		}, []string{"registration_test.go:", "is reserved"}},
		{"a negative limit", func() { router.New(&router.Options{Limits: router.Limits{Concurrency: -1}}) }, []string{"Limits.Concurrency is -1"}},
		{"a negative time", func() { router.New(&router.Options{Timeouts: router.Timeouts{Ping: -time.Second}}) }, []string{"Timeouts.Ping is -1s"}},
		{"a subprotocol with a space", func() { router.New(&router.Options{Subprotocols: []string{"chat.v1", "my proto"}}) }, []string{`Subprotocols contains "my proto"`}},
		{"an unknown limit action", func() { router.New(&router.Options{LimitAction: 9}) }, []string{"LimitAction is 9"}},
		{"an origin without scheme", func() { router.New(&router.Options{Origins: []string{"example.com"}}) }, []string{`"example.com"`}},
		{"an origin that is not ASCII", func() { router.New(&router.Options{Origins: []string{"https://bücher.example"}}) }, []string{"bücher", "Punycode"}},
		{"an origin with a path", func() { router.New(&router.Options{Origins: []string{"https://example.com/a"}}) }, []string{"example.com/a"}},
		{"an origin with a * in the middle", func() { router.New(&router.Options{Origins: []string{"https://a.*.com"}}) }, []string{"a.*.com"}},
		{"a message limit of 0 for a route", func() {
			router.On(router.New(nil), func(*router.Context, Say) error { return nil }).MaxMessageBytes(0)
		}, []string{`MaxMessageBytes of "SAY" is 0`}},
		{"an unknown limit action of a route", func() {
			router.RPC(router.New(nil), echo).LimitAction(42)
		}, []string{"LimitAction is 42"}},
		{"a nil handler of events", func() { router.On[Say](router.New(nil), nil) }, []string{"registration_test.go:", "the handler of router_test.Say is nil"}},
		{"a nil handler of calls", func() { router.RPC[Say, Echo](router.New(nil), nil) }, []string{"registration_test.go:", "the handler of router_test.Say is nil"}},
		{"a nil handler of streams", func() { router.Stream[Echo, int](router.New(nil), nil) }, []string{"the handler of router_test.Echo is nil"}},
		{"a nil router of events", func() { router.On((*router.Router)(nil), say) }, []string{"registration_test.go:", "the router or group of router_test.Say is nil"}},
		{"no router of events", func() { router.On(nil, say) }, []string{"registration_test.go:", "the router or group of router_test.Say is nil"}},
		{"a nil router of calls", func() { router.RPC((*router.Router)(nil), echo) }, []string{"registration_test.go:", "the router or group of router_test.Echo is nil"}},
		{"a nil group of streams", func() { router.Stream((*router.Group)(nil), count) }, []string{"registration_test.go:", "the router or group of router_test.Echo is nil"}},
		{"a nil router of a declaration", func() { router.DeclareMessage[Say](nil) }, []string{"DeclareMessage called for a router that is nil"}},
		{"a nil router with an observer", func() { (*router.Router)(nil).Observe(nil) }, []string{"Observe called for a router that is nil"}},
		{"a nil middleware", func() { router.New(nil).Use(nil) }, []string{"argument 1 of Use is nil"}},
		{"a nil ingress function", func() { router.RPC(router.New(nil), echo).UseIngress(nil) }, []string{"argument 1 of UseIngress is nil"}},
		{"a middleware that returns nil", func() {
			r := router.New(nil)
			r.Use(func(router.Handler) router.Handler { return nil })
			router.RPC(r, echo)
			assert.Panics(t, func() { r.ServeHTTP(nil, nil) })
			r.ServeHTTP(nil, nil) // must panic again: no half-built state may remain
		}, []string{`a middleware of "ECHO", registered at `, "has returned nil"}},
		{"a field that cannot be encoded", func() {
			router.RPC(router.New(nil), func(*router.Context, Echo) (Wrapper[struct{ C []chan int }], error) { panic("not called") })
		}, []string{"registration_test.go:", "cannot be encoded as JSON: field V: field C: ", "chan int"}},
		{"a field that is a duration", func() {
			router.On(router.New(nil), func(*router.Context, Wrapper[*time.Duration]) error { return nil })
		}, []string{"cannot be encoded as JSON: field V: ", "time.Duration"}},
		{"items that cannot be encoded", func() {
			router.Stream(router.New(nil), func(*router.Context, Echo) iter.Seq2[Wrapper[chan int], error] { return nil })
		}, []string{"registration_test.go:", "items of type ", "cannot be encoded as JSON"}},
		{"map keys that are not strings", func() {
			router.On(router.New(nil), func(*router.Context, Wrapper[map[bool]int]) error { return nil })
		}, []string{"cannot be encoded as JSON: field V: "}},
		{"two fields with one name", func() {
			type twins struct {
				A int
				B int `json:"A"`
			}
			router.On(router.New(nil), func(*router.Context, Wrapper[map[string]twins]) error { return nil })
		}, []string{"cannot be encoded as JSON: field V: ", `"A"`}},
		{"a change while serving", func() {
			r := router.New(nil)
			routertest.Dial(t, r)
			r.Use()
		}, []string{"Use called after the router began to serve"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				assert.True(t, strings.HasPrefix(text, "router: "), "panicked with %q", text)
				for _, want := range tt.want {
					assert.Contains(t, text, want)
				}
			}()
			tt.do()
		})
	}
}
