//go:build !js

package routertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// serverSide returns the server's side of the only connection.
func serverSide(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	synctest.Wait()
	for c := range r.Conns() {
		return c
	}
	t.Fatal("there is no connection")
	return nil
}

func TestHandle_AnswersCallsOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		client := routertest.Dial(t, r)
		c := serverSide(t, r)
		early := make(chan Greeted, 1)
		go func() {
			reply, err := router.Call[Greeted](t.Context(), c, Greet{Name: "early"})
			assert.NoError(t, err)
			early <- reply
		}()
		require.NoError(t, c.Send(Greet{Name: "not a call"}))
		synctest.Wait()
		routertest.Handle(client, func(m Greet) (Greeted, error) {
			if m.Name == "" {
				return Greeted{}, &errors.Error{
					Code: errors.ResourceExhausted, Message: "no name", Details: map[string]any{"a": "b"}, RetryAfter: 1500 * time.Microsecond,
				}
			}
			return Greeted{Text: "hello " + m.Name}, nil
		})
		assert.Equal(t, Greeted{Text: "hello early"}, <-early)
		reply, err := router.Call[Greeted](t.Context(), c, Greet{Name: "ann"})
		require.NoError(t, err)
		assert.Equal(t, Greeted{Text: "hello ann"}, reply)
		_, err = router.Call[Greeted](t.Context(), c, Greet{})
		assert.Equal(t, &errors.Error{
			Code: errors.ResourceExhausted, Message: "no name", Details: map[string]any{"a": "b"}, RetryAfter: 2 * time.Millisecond,
		}, public(t, err))
		assert.Equal(t, Greet{Name: "not a call"}, routertest.Receive[Greet](client))
	})
}

// public returns an error without what clients do not receive of it.
func public(t *testing.T, err error) *errors.Error {
	t.Helper()
	e, ok := errors.AsType[*errors.Error](err)
	require.True(t, ok, "%v", err)
	copied := *e
	copied.Err = nil
	return &copied
}
