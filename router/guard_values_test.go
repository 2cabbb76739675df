package router_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
)

// loaded is a message one of whose methods fails. Methods of a nil pointer fail, too.
type loaded struct {
	at    string
	fault func()
}

func (m *loaded) trigger(at string) {
	if m.at == at {
		m.fault()
	}
}

func (m *loaded) MessageType() string { m.trigger("MessageType"); return "LOADED" }
func (m *loaded) ConflationKey() string    { m.trigger("ConflationKey"); return "key" }

type loadedJSON struct{ loaded }

func (m *loadedJSON) MarshalJSON() ([]byte, error) { m.fault(); return []byte("{}"), nil }

type loadedTo struct{ loaded }

func (m *loadedTo) MarshalJSONTo(*jsonv2.Encoder) error { m.fault(); return nil }

type loadedText struct{ loaded }

func (m *loadedText) MarshalText() ([]byte, error) { m.fault(); return nil, nil }

// reply registers a handler of Faulty in whose place a middleware answers.
func reply(g *rig, m router.Message) {
	router.RPC(g.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, nil }).
		Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				err := next(ctx)
				ctx.SetReply(m)
				return err
			}
		})
}

func TestGuard_MessagesContainFaults(t *testing.T) {
	ways := map[string]func(*router.Context, router.Message) error{
		"Send":          (*router.Context).Send,
		"Publish":       func(ctx *router.Context, m router.Message) error { return ctx.Publish("room", m) },
		"PublishExceptSelf": func(ctx *router.Context, m router.Message) error { return ctx.PublishExceptSelf("room", m) },
		"SetReply":      func(ctx *router.Context, m router.Message) error { ctx.SetReply(m); return nil },
		"Progress": func(ctx *router.Context, m router.Message) error {
			return ctx.Progress(map[string]any{"a": m})
		},
	}
	values := map[string]func(fault func()) router.Message{
		"nil":                                func(func()) router.Message { return nil },
		"a nil pointer":                      func(func()) router.Message { return (*Say)(nil) },
		"a nil pointer with pointer methods": func(func()) router.Message { return (*loadedJSON)(nil) },
		"MessageType":                        func(f func()) router.Message { return &loaded{"MessageType", f} },
		"ConflationKey":                           func(f func()) router.Message { return &loaded{"ConflationKey", f} },
		"MarshalJSON":                        func(f func()) router.Message { return &loadedJSON{loaded{"", f}} },
		"MarshalJSONTo":                      func(f func()) router.Message { return &loadedTo{loaded{"", f}} },
		"MarshalText":                        func(f func()) router.Message { return &loadedText{loaded{"", f}} },
	}
	for way, do := range ways {
		for value, of := range values {
			for fault, f := range faults() {
				harmless := way == "SetReply" && value == "ConflationKey" ||
					way == "Progress" && (value == "nil" || value == "a nil pointer" || value == "MessageType" || value == "ConflationKey" || value == "a nil pointer with pointer methods")
				if harmless {
					continue
				}
				bubble(t, way+"/"+value+"/"+fault, func(t *testing.T) {
					g := &rig{T: t}
					g.start(func(g *rig) {
						router.RPC(g.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, nil }).
							Use(func(next router.Handler) router.Handler {
								return func(ctx *router.Context) error {
									if err := next(ctx); err != nil {
										return err
									}
									return do(ctx, of(f))
								}
							})
					})
					g.conn = g.dial()
					assert.Equal(t, errors.Internal, g.call(g.conn).Code)
					assert.Len(t, g.failures.all(), 1)
					assert.NotContains(t, g.panics.all(), "handler", "the method returns an error")
					g.check(true)
				})
			}
		}
	}
}

// TestGuard_PublishReturnsErrorOutsideHandlers where no guard is around the caller.
func TestGuard_PublishReturnsErrorOutsideHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rig{T: t}
		g.start(nil)
		g.conn = g.dial()
		synctest.Wait()
		for _, m := range []router.Message{nil, (*Say)(nil), &loaded{"MessageType", func() { panic("fault") }}, Explosive{}} {
			assert.Error(t, g.router.Publish("room", m))
			assert.Error(t, g.router.PublishLocal("room", m, nil))
			_, err := g.router.SendToUser("", faultyUser, m)
			assert.Error(t, err)
			for c := range g.router.Conns() {
				assert.Error(t, c.Send(m))
			}
		}
		g.check(true)
	})
}

// A faultyBroker has one method that fails.
type faultyBroker struct {
	rig *rig

	mu sync.Mutex
	at string
}

func (b *faultyBroker) set(at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = at
}

func (b *faultyBroker) trigger(at string) {
	b.mu.Lock()
	fails := b.at == at
	b.mu.Unlock()
	if fails {
		b.rig.fault()
	}
}

func (b *faultyBroker) Connect(node broker.Handler) broker.Session {
	b.rig.node = node
	b.trigger("Join")
	if b.at == "nil" {
		return nil
	}
	return b
}

func (b *faultyBroker) Subscribe(string)       { b.trigger("Subscribe") }
func (b *faultyBroker) Unsubscribe(string)     { b.trigger("Unsubscribe") }
func (b *faultyBroker) Publish(string, []byte) { b.trigger("Publish") }
func (b *faultyBroker) Close()                 { b.trigger("Close") }
