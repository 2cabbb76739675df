package run_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

// A revokable is a run whose reader loses access while something waits between Authorize and the send queue.
type revokable struct {
	t       *testing.T
	router  *router.Router
	info    run.Info
	items   chan token // to be emitted; the run ends when it is closed
	client  *routertest.Conn
	conn    *router.Conn // the server's side
	allowed bool
	hold    chan struct{} // Authorize returns when it is closed; nil if it does at once
}

const revokableQueue = 10

func newRevokable(t *testing.T) *revokable {
	v := &revokable{t: t, items: make(chan token), allowed: true}
	v.router = router.New(&router.Options{Authenticate: authenticate, Limits: router.Limits{QueueMessages: revokableQueue}})
	runs := run.New(v.router, "answer/{chat}", &run.Options[token]{Authorize: v.authorize})
	router.DeclareMessage[token](v.router) // fills the queue
	t.Cleanup(func() { assert.NoError(t, v.router.Shutdown(context.WithoutCancel(t.Context()))) })
	var err error
	v.info, err = runs.Start(t.Context(), "answer/ann", nil, v.produce)
	require.NoError(t, err)
	v.client = routertest.Dial(t, v.router, routertest.Token("ann"))
	for c := range v.router.Conns() {
		v.conn = c
	}
	return v
}

func (v *revokable) authorize(*router.Context, run.Action, run.Topic) error {
	allowed := v.allowed
	if v.hold != nil {
		<-v.hold
	}
	if !allowed {
		return errors.Errorf(errors.PermissionDenied, "no more")
	}
	return nil
}

func (v *revokable) produce(ctx context.Context, out *run.Output[token]) error {
	for {
		select {
		case item, ok := <-v.items:
			if !ok {
				return nil
			}
			if err := out.Emit(item); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attach attaches, and receives the first part, which has no item.
func (v *revokable) attach(opts ...routertest.StartOption) *routertest.Pending {
	p := routertest.Start(v.client, attach{Topic: "answer/ann"}, opts...)
	routertest.NextItem[run.Part[token]](p)
	return p
}

// fill fills the send queue of the client, which does not read.
func (v *revokable) fill() {
	v.client.Pause()
	for synctest.Wait(); v.conn.QueueStats().Messages < revokableQueue; synctest.Wait() {
		require.NoError(v.t, v.conn.Send(token{"filler"}))
	}
}

// TestRevoke_WhileSomethingWaitsForTheClient revokes the access after Authorize has permitted what then waits for a
// credit or for room. It is sent only if Authorize permits it again.
func TestRevoke_WhileSomethingWaitsForTheClient(t *testing.T) {
	for name, tt := range map[string]struct {
		wait    func(v *revokable) *routertest.Pending
		release func(v *revokable, p *routertest.Pending)
		items   string // that it sends if access is granted again
	}{
		"item for a credit": {
			func(v *revokable) *routertest.Pending {
				p := v.attach(routertest.Credit(1))
				v.items <- token{"secret"}
				return p
			},
			func(v *revokable, p *routertest.Pending) { p.Grant(10); close(v.items) }, "secret",
		},
		"item for room": {
			func(v *revokable) *routertest.Pending {
				p := v.attach()
				v.fill()
				v.items <- token{"secret"}
				return p
			},
			func(v *revokable, _ *routertest.Pending) { v.client.Resume(); close(v.items) }, "secret",
		},
		"first part for a credit": {
			func(v *revokable) *routertest.Pending {
				return routertest.Start(v.client, attach{Topic: "answer/ann"}, routertest.Credit(0))
			},
			func(v *revokable, p *routertest.Pending) { p.Grant(10); close(v.items) }, "",
		},
		"end for room": {
			func(v *revokable) *routertest.Pending {
				p := v.attach()
				v.fill()
				close(v.items)
				return p
			},
			func(v *revokable, _ *routertest.Pending) { v.client.Resume() }, "",
		},
		"answer to a stop for room": {
			func(v *revokable) *routertest.Pending {
				v.hold = make(chan struct{})
				p := routertest.Start(v.client, stop{Topic: "answer/ann", Run: v.info.ID})
				v.fill()
				close(v.hold)
				return p
			},
			func(v *revokable, _ *routertest.Pending) { v.client.Resume() }, "",
		},
	} {
		for access, granted := range map[string]bool{"denied": false, "granted again": true} {
			t.Run(name+", "+access, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := newRevokable(t)
					p := tt.wait(v)
					synctest.Wait()
					v.allowed = granted
					require.NoError(t, v.router.Revoke(t.Context(), "", "ann", "answer/{chat}"))
					tt.release(v, p)
					sent := text(p)
					if granted {
						assert.Equal(t, tt.items, sent)
						assert.NotEmpty(t, routertest.ReceiveAnswer[ended](p).State)
						return
					}
					assert.Empty(t, sent)
					assert.Equal(t, errors.NotFound, routertest.ReceiveAnswerError(p).Code)
				})
			})
		}
	}
}
