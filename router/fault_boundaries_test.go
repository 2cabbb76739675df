package router_test

import (
	"context"
	"iter"
	"net/http"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// respondWith registers a handler of Faulty that returns err.
func respondWith(err error) func(*harness) {
	return func(h *harness) {
		router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, err })
	}
}

// limitError returns an error that makes the router call the hooks for limits.
func limitError() error {
	return &router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}
}

// boundaries returns a case for every point where the router calls application code.
func boundaries() map[string]boundary {
	all := map[string]boundary{
		"Options.Authenticate": {
			prepare: func(h *harness) {
				h.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
					if req.Header.Get("X-Fault") != "" {
						h.fault()
					}
					return router.Identity{UserID: router.Token(req)}, nil
				}
			},
			trigger: (*harness).requestFails,
			reason:  "Authenticate", exits: true,
		},
		"Options.ConnContext": {
			prepare: func(h *harness) {
				h.opts.ConnContext = func(req *http.Request) context.Context {
					if req.Header.Get("X-Fault") != "" {
						h.fault()
					}
					return req.Context()
				}
			},
			trigger: (*harness).requestFails,
			reason:  "ConnContext", exits: true,
		},
		"Options.OnOpen": {
			prepare: func(h *harness) {
				h.opts.OnOpen = func(_ context.Context, c *router.Conn) error {
					if c.Identity().UserID == faultyUser {
						h.fault()
					}
					return nil
				}
			},
			trigger: func(h *harness) {
				assert.Equal(h, router.StatusInternalError, h.dial().Closed().Code)
			},
			reason: "OnOpen", exits: true, ends: true,
		},
		"Options.OnClose": {
			prepare: func(h *harness) { h.opts.OnClose = func(*router.Conn, router.CloseError) { h.fault() } },
			trigger: func(h *harness) {
				h.dial().Close()
				synctest.Wait()
			},
			reason: "OnClose", exits: true,
		},
		"Options.OnError": {
			prepare: func(h *harness) { h.opts.OnError = func(router.ErrorReport) { h.fault() } },
			setUp:   respondWith(http.ErrNoCookie), want: errors.Internal, reason: "OnError", exits: true,
		},
		"Options.OnRefused": {
			prepare: func(h *harness) { h.opts.OnRefused = func(router.Refusal) { h.fault() } },
			setUp:   respondWith(errors.Errorf(errors.NotFound, "no such room")), want: errors.NotFound, reason: "OnRefused", exits: true,
		},
		"Options.OnLimitExceeded": {
			prepare: func(h *harness) { h.opts.OnLimitExceeded = func(router.LimitExceeded) { h.fault() } },
			setUp:   respondWith(limitError()), want: errors.ResourceExhausted, reason: "OnLimitExceeded", exits: true,
		},
		"Options.Validate": {
			prepare: func(h *harness) {
				h.opts.Validate = func(m any) error {
					if m == (Faulty{}) {
						h.fault()
					}
					return nil
				}
			},
			setUp: respondWith(nil), want: errors.Internal, reason: "decode", exits: true,
		},
		"Options.AnnounceLimits": {
			prepare: func(h *harness) {
				h.opts.AnnounceLimits = func(router.IngressContext) []router.AnnouncedLimit { h.fault(); return nil }
			},
			trigger: func(h *harness) {
				h.conn = h.dial()
				assert.Nil(h, h.conn.Greet().Limits, "a part of the limits would mislead the client")
			},
			reason: "AnnounceLimits",
			onExit: func(h *harness) bool {
				h.conn = h.dial()
				h.conn.SendText(`{"type":"$ws:hello"}`)
				assert.Equal(h, errors.Internal, routertest.ReceiveError(h.conn).Code)
				return true
			},
		},
		"Options.Resume.OnSessionEnd": {
			prepare: func(h *harness) {
				h.opts.Resume = router.ResumeOptions{Within: time.Minute, OnSessionEnd: func(router.SessionEnd) { h.fault() }}
			},
			trigger: func(h *harness) {
				conn := h.dial()
				conn.SendText(`{"type":"$ws:hello","payload":{"session":true}}`)
				routertest.Receive[routertest.Welcome](conn)
				conn.Close()
			},
			reason: "OnSessionEnd", exits: true,
		},
		"Options.Resume.OnResume": {
			prepare: func(h *harness) {
				h.opts.Resume = router.ResumeOptions{Within: time.Minute, OnResume: func(*router.Context, router.ResumedSession) error {
					h.fault()
					return nil
				}}
			},
			trigger: func(h *harness) {
				old := h.dial()
				old.SendText(`{"type":"$ws:hello","payload":{"session":true}}`)
				welcome := routertest.Receive[routertest.Welcome](old)
				old.Abort()
				synctest.Wait()
				h.conn = h.dial()
				h.conn.SendText(`{"type":"$ws:resume","payload":{"token":"` + welcome.Session.Token + `"}}`)
				assert.Equal(h, errors.Internal, routertest.ReceiveError(h.conn).Code)
			},
			reason: "handler", exits: true,
		},
		"Options.OnBackpressure": {
			prepare: func(h *harness) {
				h.opts.SlowConsumer, h.opts.Limits.QueueMessages = router.DropOldest, 4
				h.opts.OnBackpressure = func(*router.Conn, int, int) { h.fault() }
			},
			trigger: func(h *harness) { h.fillQueue() }, reason: "OnBackpressure", exits: true,
		},
		"TopicOptions.Authorize": {
			setUp: func(h *harness) {
				router.Topic(h.router, "room/{id}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error {
					h.fault()
					return nil
				}})
			},
			trigger: func(h *harness) {
				h.conn = h.dial()
				assert.Equal(h, errors.Internal, routertest.SubscribeError(h.conn, "room/go").Code)
			},
			reason: "handler", exits: true,
		},
		"TopicOptions.AuthorizeHidden": {
			setUp: func(h *harness) {
				permit := func(*router.Context, router.TopicMatch) error { return nil }
				router.Topic(h.router, "room/{id}", &router.TopicOptions{Authorize: permit, AuthorizeHidden: func(*router.Context, router.TopicMatch) error {
					h.fault()
					return nil
				}})
			},
			trigger: func(h *harness) {
				h.conn = h.dial()
				_, err := routertest.SubscribeHidden(h.conn, "room/go")
				assert.Equal(h, errors.Internal, err.Code)
			},
			reason: "handler", exits: true,
		},
		"Options.OnPresence": {
			prepare: func(h *harness) { h.opts.OnPresence = func(router.PresenceEvent) { h.fault() } },
			trigger: func(h *harness) { h.joinAndLeave() }, reason: "OnPresence", exits: true,
		},
		"Options.OnMessagesLost": {
			prepare: func(h *harness) {
				h.opts.Broker = &faultyBroker{harness: h}
				h.opts.OnMessagesLost = func(string, int) { h.fault() }
			},
			trigger: func(h *harness) { h.node.MessagesLost("room", 1) }, reason: "OnMessagesLost", exits: true,
		},
		"Options.Logger": {}, // see TestFault_LoggerPanicIsNotRecovered
		"Options.Broker": {}, // see Node
		"Options.Tracer": {
			prepare: func(h *harness) { h.opts.Tracer = &faultyTracer{harness: h} },
			setUp:   respondWith(nil),
			trigger: func(h *harness) {
				h.conn = h.dial()
				routertest.Call[Echoed](h.conn, Faulty{})
			},
			reason: "Tracer",
		},
		"Broker.Connect": {}, // see TestFault_BrokerConnectFailurePanicsAtStartUp
		"Observe.f": {
			setUp: func(h *harness) {
				h.router.Observe(func(observe.Event) { h.fault() })
				h.router.Observe(func(e observe.Event) {
					if e.Kind == observe.Completed {
						h.panics.add("the next observer is called")
					}
				})
				respondWith(http.ErrNoCookie)(h)
			},
			want: errors.Internal, reason: "the next observer is called",
		},
		"ObserveRefusals.f": {
			setUp: func(h *harness) {
				h.router.ObserveRefusals(func(router.Refusal) { h.fault() })
				respondWith(errors.Errorf(errors.NotFound, "no such room"))(h)
			},
			want: errors.NotFound, reason: "OnRefused", exits: true,
		},
		"Codec.Subprotocol": {}, // called by New alone
		"Codec.Marshal": {
			prepare: func(h *harness) { h.opts.Codecs = []router.Codec{&faultyCodec{harness: h, at: "Marshal"}} },
			setUp:   respondWith(nil),
			trigger: func(h *harness) {
				h.conn = routertest.Dial(h, h.router, routertest.Token(faultyUser), routertest.Codec(&faultyCodec{}))
				assert.Equal(h, errors.Internal, h.call(h.conn).Code)
				h.conn.Close()
				h.conn = nil
				synctest.Wait()
			},
			exits: true,
		},
		"Codec.Unmarshal": {
			prepare: func(h *harness) { h.opts.Codecs = []router.Codec{&faultyCodec{harness: h, at: "Unmarshal"}} },
			setUp:   respondWith(nil),
			trigger: func(h *harness) {
				h.conn = routertest.Dial(h, h.router, routertest.Token(faultyUser), routertest.Codec(&faultyCodec{}))
				assert.Equal(h, errors.Internal, routertest.CallError(h.conn, Faulty{}).Code)
			},
			reason: "decode", exits: true,
		},
		"On.handle": {
			setUp: func(h *harness) {
				router.On(h.router, func(*router.Context, Faulty) error { h.fault(); return nil })
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"RPC.handle": {
			setUp: func(h *harness) {
				router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { h.fault(); return Echoed{}, nil })
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"Stream.handle": {
			setUp: func(h *harness) {
				router.Stream(h.router, func(*router.Context, Faulty) iter.Seq2[int, error] {
					return func(func(int, error) bool) { h.fault() }
				})
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"Middleware": {
			setUp: func(h *harness) {
				h.router.Use(func(next router.Handler) router.Handler {
					return func(ctx *router.Context) error {
						if ctx.Type() == "FAULTY" {
							h.fault()
						}
						return next(ctx)
					}
				})
				respondWith(nil)(h)
			},
			want: errors.Internal, reason: "handler", exits: true,
		},
		"Handler": {}, // see Middleware
		"IngressFunc": {
			setUp: func(h *harness) {
				respondWith(nil)(h)
				h.router.UseIngress(func(_ context.Context, in router.IngressContext) error {
					if in.Type == "FAULTY" {
						h.fault()
					}
					return nil
				})
			},
			want: errors.Internal, reason: "ingress", exits: true,
		},
		"OnConcurrencyExceeded.f": {
			setUp: func(h *harness) {
				respondWith(&router.LimitExceeded{Kind: router.LimitConcurrency})(h)
				h.router.UseIngress(func(_ context.Context, in router.IngressContext) error {
					in.OnConcurrencyExceeded(func(context.Context) { h.fault() })
					return nil
				})
			},
			want: errors.ResourceExhausted, reason: "OnConcurrencyExceeded", exits: true,
		},
		"Message.MessageType": {
			setUp: func(h *harness) { replyWith(h, &failingMessage{"MessageType", h.fault}) },
			want:  errors.Internal, exits: true,
		},
		"Conflatable.ConflationKey": {
			setUp: func(h *harness) {
				router.RPC(h.router, func(ctx *router.Context, _ Faulty) (Echoed, error) {
					return Echoed{}, ctx.Send(&failingMessage{"ConflationKey", h.fault})
				})
			},
			want: errors.Internal, exits: true,
		},
	}
	for _, method := range []string{"Subscribe", "Unsubscribe", "Publish", "Join", "Leave", "Track", "Untrack"} {
		all["Node."+method] = nodeBoundary(method)
	}
	all["Node.Name"] = boundary{}  // see TestFault_BrokerConnectFailurePanicsAtStartUp
	all["Node.Nodes"] = boundary{} // called by functions of the router that the application calls
	all["Node.Close"] = boundary{} // called by Shutdown
	return all
}

// nodeBoundary returns the case in which one method of the broker's node fails while a handler calls it.
func nodeBoundary(method string) boundary {
	return boundary{
		prepare: func(h *harness) { h.opts.Broker = &faultyBroker{harness: h, at: method} },
		setUp: func(h *harness) {
			router.On(h.router, func(ctx *router.Context, _ Faulty) error {
				if err := ctx.Subscribe("room", router.Present("")); err != nil {
					return err
				}
				if err := ctx.Publish("room", Nothing{}); err != nil {
					return err
				}
				ctx.Unsubscribe("room")
				return ctx.Send(Nothing{})
			})
		},
		trigger: func(h *harness) {
			h.conn = h.dial()
			h.conn.Send(Faulty{})
			for frame := h.conn.Next(); frame.Type != "ERROR"; frame = h.conn.Next() {
				assert.Equal(h, "NOTHING", frame.Type)
			}
			h.opts.Broker.(*faultyBroker).set("")
			h.conn.Send(Faulty{})
			routertest.Receive[Nothing](h.conn)
			routertest.Receive[Nothing](h.conn)
			assert.Empty(h, h.router.Presence("room"))
		},
		reason: "handler", exits: true,
	}
}
