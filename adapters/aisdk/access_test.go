package aisdk_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// TestRevoke_EndsStreams of the user on another node, and no others. The run goes on.
func TestRevoke_EndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Bool
		all := nodes(t, 2, aisdk.Options{Authorize: func(ctx context.Context, a aisdk.Access) error {
			if a.Identity.UserID == "viewer" && revoked.Load() {
				return errors.Errorf(errors.PermissionDenied, "not any more")
			}
			return authorize(ctx, a)
		}})
		ann, viewer := all[0].open(t, "ann"), all[1].open(t, "viewer")
		ann.write(submit("1", "ann-1", "m", long()))
		for ann.next().Type != "chunk" {
		}
		viewer.write(resume("1", "ann-1"))
		for viewer.next().Type != "chunk" {
		}

		require.NoError(t, all[0].router.Revoke(t.Context(), "", "viewer", "answer/ann-2"))
		for range 10 {
			assert.Equal(t, "chunk", viewer.next().Type, "another chat")
		}
		revoked.Store(true)
		require.NoError(t, all[0].router.Revoke(t.Context(), "", "viewer", "answer/{chat}"))
		f := viewer.next()
		for f.Type == "chunk" { // sent before, and what closes the answer
			f = viewer.next()
		}
		assert.Equal(t, frame{Type: "error", RequestID: "1", ErrorText: "the access to this chat has ended"}, f)
		viewer.write(resume("2", "ann-1"))
		assert.Equal(t, frame{Type: "no-active", RequestID: "2"}, viewer.next(), "nothing else follows the error")

		for range 10 {
			assert.Equal(t, "chunk", ann.next().Type)
		}
		assert.Equal(t, run.Running, all[0].state(t))
		ann.write(abort("1"))
		for f := ann.next(); f.Type != "end"; f = ann.next() {
		}
	})
}

// TestRevoke_DuringAuthorize asks again.
func TestRevoke_DuringAuthorize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoke func()
		asked := 0
		all := nodes(t, 1, aisdk.Options{Authorize: func(context.Context, aisdk.Access) error {
			if asked++; asked == 1 {
				revoke() // after this call has read what it decides by
				return nil
			}
			return errors.Errorf(errors.PermissionDenied, "not any more")
		}})
		revoke = func() { assert.NoError(t, all[0].router.Revoke(t.Context(), "", "ann", "answer/ann-1")) }
		ann := all[0].open(t, "ann")
		ann.write(submit("1", "ann-1", "m", script{Items: 1, FailAfter: -1}))
		assert.Equal(t, frame{Type: "error", RequestID: "1", ErrorText: "not any more"}, ann.next())
		assert.Equal(t, 2, asked)
	})
}

// TestDisconnectUser_ClosesConnections of the user on all nodes, and no others.
func TestDisconnectUser_ClosesConnections(t *testing.T) {
	for name, history := range map[string]router.History{"published": {}, "in a log": {Messages: 10, Age: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := nodesOf(t, 2, &router.Options{Broker: memory.NewBroker(), UserHistory: history}, aisdk.Options{})
				pages := []*page{all[0].open(t, "ann"), all[1].open(t, "ann"), all[1].open(t, "bob")}
				pages[0].write(submit("1", "ann-1", "m", long()))
				for pages[0].next().Type != "chunk" {
				}
				_, err := all[0].router.DisconnectUser("", "ann", 4003, "banned")
				require.NoError(t, err)
				assert.Equal(t, websocket.StatusCode(4003), pages[0].closed())
				assert.Equal(t, websocket.StatusCode(4003), pages[1].closed())
				pages[2].write(resume("1", "bob-1"))
				assert.Equal(t, "no-active", pages[2].next().Type)
				_, err = all[1].runs.Stop(t.Context(), "answer/ann-1", "", "")
				require.NoError(t, err)
			})
		})
	}
}

// TestDisconnectUser_WhileConnecting disconnects a user who is being authenticated.
func TestDisconnectUser_WhileConnecting(t *testing.T) {
	for name, history := range map[string]router.History{"published": {}, "in a log": {Messages: 10, Age: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var other *router.Router
				all := nodesOf(t, 2, &router.Options{Broker: memory.NewBroker(), UserHistory: history}, aisdk.Options{
					Authenticate: func(req *http.Request) (router.Identity, error) {
						if other != nil {
							_, err := other.DisconnectUser("", "ann", 4003, "banned")
							assert.NoError(t, err)
							time.Sleep(time.Second) // it reaches this node meanwhile
						}
						return router.Identity{UserID: req.URL.Query().Get("user")}, nil
					},
				})
				other = all[1].router
				assert.Equal(t, websocket.StatusCode(4003), all[0].open(t, "ann").closed())
				other = nil
				ann := all[0].open(t, "ann")
				ann.write(resume("1", "ann-1"))
				assert.Equal(t, "no-active", ann.next().Type, "who connects afterwards")
			})
		})
	}
}

// waitingViewer returns a viewer that does not read, of three streams that have chunks, or have ended, since it has read
// the first ones.
func waitingViewer(t *testing.T, n *node, s script) *page {
	viewer, ids := n.open(t, "viewer"), []string{"1", "2", "3"}
	for _, id := range ids {
		ann := n.open(t, "ann")
		ann.write(submit(id, "ann-"+id, "m", s))
		ann.next() // it has started
		go ann.closed()
		t.Cleanup(func() {
			_, err := n.runs.Stop(context.WithoutCancel(t.Context()), "answer/ann-"+id, "", "")
			assert.NoError(t, err)
		})
	}
	for _, id := range ids {
		viewer.write(resume(id, "ann-"+id))
	}
	for started := 0; started < len(ids); {
		if f := viewer.next(); f.Type == "chunk" && *f.Sequence == 3 {
			started++
		}
	}
	time.Sleep(10 * time.Second)
	return viewer
}

// TestRevoke_WhileStreamsWait revokes while what the streams of a connection send waits for a client that does not read:
// of one, the client has received a part, and that of the others is not sent.
func TestRevoke_WhileStreamsWait(t *testing.T) {
	for name, s := range map[string]script{
		"chunks": long(),
		"ends":   {Items: 2, EveryMs: 5000, FailAfter: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := nodes(t, 1, aisdk.Options{})[0]
				viewer := waitingViewer(t, n, s)
				require.NoError(t, n.router.Revoke(t.Context(), "", "viewer", "answer/{chat}"))
				sent := 0
				for ended := 0; ended < 3; {
					f := viewer.next()
					if f.Type == "error" {
						ended++
					}
					if f.Type == "error" && f.ErrorText != "the access to this chat has ended" || f.Type == "chunk" && chunkType(t, f) == "text-delta" {
						sent++
					}
				}
				assert.LessOrEqual(t, sent, 1)
			})
		})
	}
}

func TestDisconnectUser_WhileStreamsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{})[0]
		viewer := waitingViewer(t, n, long())
		_, err := n.router.DisconnectUser("", "viewer", 4003, "banned")
		require.NoError(t, err)
		frames := 0
		for ; ; frames++ {
			if _, _, err = viewer.ws.Read(t.Context()); err != nil {
				break
			}
		}
		assert.Equal(t, websocket.StatusCode(4003), websocket.CloseStatus(err))
		assert.LessOrEqual(t, frames, 1)
	})
}
