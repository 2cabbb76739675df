package run_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

type (
	attach  = runmessages.Attach[token]
	stop    = runmessages.Stop[token]
	ended   = runmessages.Ended
	changed = runmessages.Changed
)

// ownTopic permits everything in the topics that begin with the user's ID.
func ownTopic(ctx *router.Context, _ run.Action, topic run.Topic) error {
	if id := ctx.Identity().UserID; id == "" || topic.Value("chat") != id {
		return errors.Errorf(errors.PermissionDenied, "not yours")
	}
	return nil
}

// userRouter authenticates each client as the user that its token names.
func userRouter(t *testing.T, opts *run.Options[token]) (*router.Router, *run.Runs[token]) {
	r := router.New(&router.Options{Authenticate: authenticate})
	rs := run.New(r, "answer/{chat}", opts)
	t.Cleanup(func() { assert.NoError(t, r.Shutdown(context.WithoutCancel(t.Context()))) })
	return r, rs
}

func authenticate(req *http.Request) (router.Identity, error) {
	return router.Identity{UserID: router.Token(req)}, nil
}

func text(p *routertest.Pending) (text string) {
	for part := range routertest.Items[run.Part[token]](p) {
		if part.Item != nil {
			text += part.Item.Text
		}
	}
	return text
}

func TestClients_AttachAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rs := userRouter(t, &run.Options[token]{Authorize: ownTopic, Merge: concat})
		ann := routertest.Dial(t, r, routertest.Token("ann"))
		routertest.Subscribe(ann, "answer/ann")
		info, err := rs.Start(t.Context(), "answer/ann", nil, func(ctx context.Context, out *run.Output[token]) error {
			for range 3 {
				if err := out.Emit(token{"a"}); err != nil {
					return err
				}
			}
			return wait(ctx, out)
		})
		require.NoError(t, err)
		assert.Equal(t, "running", routertest.Receive[changed](ann).State)
		synctest.Wait() // the items are stored
		p := routertest.Start(ann, attach{Topic: "answer/ann", Run: info.ID, From: 1})
		first := routertest.NextItem[run.Part[token]](p)
		assert.Equal(t, run.Part[token]{Run: info.ID, Number: 1}, first)
		end := routertest.Call[ended](ann, stop{Topic: "answer/ann", Run: info.ID})
		assert.Equal(t, "stopped", end.State)
		assert.Equal(t, "ann", end.By)
		assert.Equal(t, "aa", text(p))
		assert.Equal(t, end, routertest.ReceiveAnswer[ended](p))
		assert.Equal(t, end, routertest.Call[ended](ann, stop{Topic: "answer/ann", Run: info.ID}), "a second stop")
	})
}

// TestClients_SeeNoRunsOfOthers compares every answer with that about a topic without a run.
func TestClients_SeeNoRunsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rs := userRouter(t, &run.Options[token]{Authorize: ownTopic})
		info, err := rs.Start(t.Context(), "answer/ann", nil, wait)
		require.NoError(t, err)
		bob := routertest.Dial(t, r, routertest.Token("bob"))
		for _, topic := range []string{"answer/ann", "answer/nobody", "answer/bob", "other", "\x00run/" + info.ID + "/answer/ann"} {
			p := routertest.Start(bob, attach{Topic: topic})
			assert.Equal(t, "there is no such run", routertest.ReceiveAnswerError(p).Message, topic)
			assert.Equal(t, "there is no such run", routertest.CallError(bob, stop{Topic: topic, Run: info.ID}).Message, topic)
		}
		assert.Equal(t, errors.NotFound, routertest.SubscribeError(bob, "answer/ann").Code)
		assert.Equal(t, errors.InvalidArgument, routertest.CallError(bob, stop{Topic: "answer/bob"}).Code, "which run to stop must be said")
		now, err := rs.Find(t.Context(), "answer/ann", "")
		require.NoError(t, err)
		assert.Equal(t, run.Running, now.State)
	})
}

func TestClients_NoneMayWithoutAuthorize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rs := userRouter(t, nil)
		_, err := rs.Start(t.Context(), "answer/ann", nil, wait)
		require.NoError(t, err)
		ann := routertest.Dial(t, r, routertest.Token("ann"))
		assert.Equal(t, errors.NotFound, routertest.ReceiveAnswerError(routertest.Start(ann, attach{Topic: "answer/ann"})).Code)
	})
}

// TestClients_SlowReadersReceiveMergedItems gives one credit at a time.
func TestClients_SlowReadersReceiveMergedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rs := userRouter(t, &run.Options[token]{Authorize: ownTopic, Merge: concat})
		const items = 1000
		_, err := rs.Start(t.Context(), "answer/ann", nil, func(ctx context.Context, out *run.Output[token]) error {
			for range items {
				time.Sleep(time.Millisecond)
				if err := out.Emit(token{"a"}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		ann := routertest.Dial(t, r, routertest.Token("ann"))
		p := routertest.Start(ann, attach{Topic: "answer/ann"}, routertest.Credit(2))
		routertest.NextItem[run.Part[token]](p)
		time.Sleep(100 * time.Millisecond)
		first := routertest.NextItem[run.Part[token]](p)
		time.Sleep(2 * time.Second)
		p.Grant(2)
		rest := routertest.NextItem[run.Part[token]](p)
		assert.Equal(t, items, len(first.Item.Text)+len(rest.Item.Text)+len(strings.TrimSpace(text(p))))
		assert.Equal(t, "completed", routertest.ReceiveAnswer[ended](p).State)
	})
}

// TestClients_EmptyValuesAreSent: an item without members, and a request to stop without a name, are values.
func TestClients_EmptyValuesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		rs := run.New(r, "answer/{chat}", &run.Options[empty]{Authorize: func(*router.Context, run.Action, run.Topic) error { return nil }})
		info, err := rs.Start(t.Context(), "answer/1", nil, func(ctx context.Context, out *run.Output[empty]) error {
			return errors.Join(out.Emit(empty{}), sleep(ctx, time.Hour))
		})
		require.NoError(t, err)
		p := routertest.Start(routertest.Dial(t, r), runmessages.Attach[empty]{Topic: "answer/1"})
		routertest.NextItem[run.Part[empty]](p)
		assert.NotNil(t, routertest.NextItem[run.Part[empty]](p).Item)
		began := time.Now()
		_, err = rs.Stop(t.Context(), "answer/1", info.ID, "")
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 2*time.Second)
		require.NoError(t, r.Shutdown(t.Context()))
	})
}

type empty struct {
	Text string `json:"text,omitzero"`
}

func (empty) MessageType() string { return "empty" }
