package router_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// answer registers a handler of Faulty that returns an error.
func answer(err error) func(*rig) {
	return func(g *rig) {
		router.RPC(g.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, err })
	}
}

// limitReached is what a handler returns to make hooks about limits run.
func limitReached() error {
	return &router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}
}

// boundaries returns a case for every place where the router calls application code.
func boundaries() map[string]boundary {
	all := map[string]boundary{
		"Options.Authenticate": {
			prepare: func(g *rig) {
				g.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
					if req.Header.Get("X-Fault") != "" {
						g.fault()
					}
					return router.Identity{UserID: router.Token(req)}, nil
				}
			},
			provoke: func(g *rig) {
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					req := httptest.NewRequest(http.MethodGet, "/?access_token="+faultyUser, nil)
					req.Header.Set("X-Fault", "1")
					g.router.ServeHTTP(w, req)
				}()
				<-ended
				assert.Equal(g, http.StatusInternalServerError, w.Code)
			},
			reason: "Authenticate", exits: true,
		},
		"Options.OnOpen": {
			prepare: func(g *rig) {
				g.opts.OnOpen = func(_ context.Context, c *router.Conn) error {
					if c.Identity().UserID == faultyUser {
						g.fault()
					}
					return nil
				}
			},
			provoke: func(g *rig) {
				assert.Equal(g, router.StatusInternalError, g.dial().Closed().Code)
			},
			reason: "OnOpen", exits: true, ends: true,
		},
		"Options.OnClose": {
			prepare: func(g *rig) { g.opts.OnClose = func(*router.Conn, router.CloseError) { g.fault() } },
			provoke: func(g *rig) {
				g.dial().Close()
				synctest.Wait()
			},
			reason: "OnClose", exits: true,
		},
		"Options.OnError": {
			prepare: func(g *rig) { g.opts.OnError = func(router.ErrorReport) { g.fault() } },
			setUp:   answer(http.ErrNoCookie), want: errors.Internal, reason: "OnError", exits: true,
		},
		"Options.OnLimitExceeded": {
			prepare: func(g *rig) { g.opts.OnLimitExceeded = func(router.LimitExceeded) { g.fault() } },
			setUp:   answer(limitReached()), want: errors.ResourceExhausted, reason: "OnLimitExceeded", exits: true,
		},
		"Options.CloseCode": {
			prepare: func(g *rig) {
				g.opts.LimitAction = router.ActionClose
				g.opts.CloseCode = func(router.LimitExceeded) router.StatusCode { g.fault(); return 0 }
			},
			setUp: answer(limitReached()),
			provoke: func(g *rig) {
				conn := g.dial()
				conn.Send(Faulty{})
				assert.Equal(g, router.StatusTryAgainLater, conn.Closed().Code)
			},
			reason: "CloseCode", exits: true, ends: true,
		},
		"Options.Validate": {
			prepare: func(g *rig) {
				g.opts.Validate = func(m any) error {
					if m == (Faulty{}) {
						g.fault()
					}
					return nil
				}
			},
			setUp: answer(nil), want: errors.Internal, reason: "decode", exits: true,
		},
		"Options.OnBackpressure": {
			prepare: func(g *rig) {
				g.opts.SlowConsumer, g.opts.Limits.QueueMessages = router.DropOldest, 4
				g.opts.OnBackpressure = func(*router.Conn, int, int) { g.fault() }
			},
			provoke: func(g *rig) { g.fill() }, reason: "OnBackpressure", exits: true,
		},
		"Options.OnPresence": {
			prepare: func(g *rig) { g.opts.OnPresence = func(router.PresenceEvent) { g.fault() } },
			provoke: func(g *rig) { g.enter() }, reason: "OnPresence", exits: true,
		},
		"Options.OnMessagesLost": {
			prepare: func(g *rig) {
				g.opts.Broker = &faultyBroker{rig: g}
				g.opts.OnMessagesLost = func(string, int) { g.fault() }
			},
			provoke: func(g *rig) { g.node.MessagesLost("room", 1) }, reason: "OnMessagesLost", exits: true,
		},
		"Options.Logger": {
			prepare: func(g *rig) {
				g.opts.Logger = slog.New(&hookedHandler{handle: func(slog.Record) { g.fault() }})
				g.opts.OnClose = func(*router.Conn, router.CloseError) { panic("to be logged") }
				g.opts.OnPresence = func(router.PresenceEvent) { panic("to be logged") }
			},
			setUp: answer(http.ErrNoCookie),
			provoke: func(g *rig) {
				g.enter()
				assert.Equal(g, errors.Internal, g.call(g.conn).Code)
				for name := range faults() {
					routertest.Refused(g, g.router, routertest.Header("Origin", "https://"+name[:5]+".example"))
				}
			},
			reason: "Logger",
		},
		"Options.Broker": {}, // see Broker and Session
		"Broker.Connect": {}, // see TestGuard_BrokerThatCannotJoinFailsAtStartUp
		"Observe.f": {
			setUp: func(g *rig) {
				g.router.Observe(func(router.Event) { g.fault() })
				g.router.Observe(func(e router.Event) {
					if e.Kind == router.EventCompleted {
						g.panics.add("the next observer is called")
					}
				})
				answer(http.ErrNoCookie)(g)
			},
			want: errors.Internal, reason: "the next observer is called",
		},
		"On.handle": {
			setUp: func(g *rig) {
				router.On(g.router, func(*router.Context, Faulty) error { g.fault(); return nil })
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"RPC.handle": {
			setUp: func(g *rig) {
				router.RPC(g.router, func(*router.Context, Faulty) (Echoed, error) { g.fault(); return Echoed{}, nil })
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"Middleware": {
			setUp: func(g *rig) {
				g.router.Use(func(next router.Handler) router.Handler {
					return func(ctx *router.Context) error {
						if ctx.Type() == "FAULTY" {
							g.fault()
						}
						return next(ctx)
					}
				})
				answer(nil)(g)
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"Handler": {}, // see Middleware
		"IngressFunc": {
			setUp: func(g *rig) {
				answer(nil)(g)
				g.router.UseIngress(func(_ context.Context, in router.IngressContext) error {
					if in.Type == "FAULTY" {
						g.fault()
					}
					return nil
				})
			},
			want: errors.Internal, reason: "ingress", exits: true,
		},
		"Message.MessageType": {
			setUp: func(g *rig) { reply(g, &loaded{"MessageType", g.fault}) },
			want:  errors.Internal, exits: true,
		},
		"Conflatable.ConflationKey": {
			setUp: func(g *rig) {
				router.RPC(g.router, func(ctx *router.Context, _ Faulty) (Echoed, error) {
					return Echoed{}, ctx.Send(&loaded{"ConflationKey", g.fault})
				})
			},
			want: errors.Internal, exits: true,
		},
	}
	for _, method := range []string{"Subscribe", "Unsubscribe", "Publish"} {
		all["Session."+method] = sessionBoundary(method)
	}
	all["Session.Close"] = boundary{
		prepare: func(g *rig) { g.opts.Broker = &faultyBroker{rig: g, at: "Close"} },
		provoke: func(g *rig) {
			require.NoError(g, g.router.Shutdown(g.Context()))
			assert.Equal(g, []string{"Broker.Close"}, g.panics.all())
			g.start(nil) // another router, to be checked
		},
		reason: "Broker.Close",
	}
	return all
}

// sessionBoundary makes a method of a broker's session fail for every message about a topic.
func sessionBoundary(method string) boundary {
	return boundary{
		prepare: func(g *rig) { g.opts.Broker = &faultyBroker{rig: g, at: method} },
		setUp: func(g *rig) {
			router.On(g.router, func(ctx *router.Context, _ Faulty) error {
				if err := ctx.Join("room", ""); err != nil {
					return err
				}
				if err := ctx.Publish("room", Nothing{}); err != nil {
					return err
				}
				ctx.Unsubscribe("room")
				return ctx.Send(Nothing{})
			})
		},
		provoke: func(g *rig) {
			g.conn = g.dial()
			for range 2 {
				g.conn.Send(Faulty{})
				routertest.Receive[Nothing](g.conn) // the publication: this node works on
				routertest.Receive[Nothing](g.conn)
				assert.Empty(g, g.router.Presence("room"))
			}
			for c := range g.router.Conns() {
				if c.Identity().UserID == faultyUser {
					require.NoError(g, c.Join("left at the end", ""))
				}
			}
			g.conn.Close()
			synctest.Wait()
			assert.Empty(g, g.router.Presence("left at the end"))
			g.conn = nil
		},
		reason: "Broker." + method,
		onExit: func(g *rig) bool {
			g.conn = g.dial()
			g.conn.Send(Faulty{})
			for frame := g.conn.Next(); frame.Type != "ERROR"; frame = g.conn.Next() {
				assert.Equal(g, "NOTHING", frame.Type)
			}
			g.opts.Broker.(*faultyBroker).set("")
			g.conn.Send(Faulty{})
			routertest.Receive[Nothing](g.conn)
			routertest.Receive[Nothing](g.conn)
			assert.Empty(g, g.router.Presence("room"))
			return true
		},
	}
}

// fill fills the queue of a connection until drops and the hooks about it have come.
func (g *rig) fill() {
	g.conn = g.dial()
	synctest.Wait()
	g.conn.Hold()
	for c := range g.router.Conns() {
		for range 10 {
			if c.Identity().UserID == faultyUser {
				_ = c.Send(Nothing{})
			}
		}
	}
	synctest.Wait()
	g.conn.Resume()
	synctest.Wait()
	for g.conn.Pending() > 0 {
		g.conn.Next()
	}
}

// enter makes a connection enter a topic and leave it.
func (g *rig) enter() {
	g.conn = g.dial()
	synctest.Wait()
	for c := range g.router.Conns() {
		require.NoError(g, c.Join("room", ""))
		c.Unsubscribe("room")
	}
	synctest.Wait()
}

// A hookedHandler handles each record by a function.
type hookedHandler struct{ handle func(slog.Record) }

func (h *hookedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *hookedHandler) Handle(_ context.Context, rec slog.Record) error {
	h.handle(rec)
	return nil
}

func (h *hookedHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *hookedHandler) WithGroup(string) slog.Handler      { return h }
