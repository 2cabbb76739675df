package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// Confirm is a call to a client.
type Confirm struct {
	Question string `json:"question"`
}

func (Confirm) MessageType() string { return "CONFIRM" }

// Confirmed is its reply.
type Confirmed struct {
	Yes bool `json:"yes"`
	By  string
}

func (Confirmed) MessageType() string { return "CONFIRMED" }

func (c Confirmed) Validate() error {
	switch c.By {
	case "":
		return nil
	case "panic":
		panic("By is panic")
	default:
		return errors.InvalidField("By", "must be empty")
	}
}

// dialConn opens a connection and returns both sides.
func dialConn(t *testing.T, r *router.Router) (*routertest.Conn, *router.Conn) {
	t.Helper()
	before := map[*router.Conn]bool{}
	for _, c := range collect(r) {
		before[c] = true
	}
	client := routertest.Dial(t, r)
	for {
		for _, c := range collect(r) {
			if !before[c] {
				return client, c
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// An outcome is what Call has returned.
type outcome struct {
	reply Confirmed
	err   error
	after time.Duration
}

// confirm makes a call on a new goroutine.
func confirm(ctx context.Context, c *router.Conn) <-chan outcome {
	done, start := make(chan outcome, 1), time.Now()
	go func() {
		reply, err := router.Call[Confirmed](ctx, c, Confirm{"delete?"})
		done <- outcome{reply, err, time.Since(start)}
	}()
	return done
}

// answer returns the text of an answer to a call.
func answer(id, typ, payload string) string {
	return fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q},"payload":%s}`, typ, id, payload)
}

func TestClientCall_RejectsWhatCannotBeSent(t *testing.T) {
	_, c := dialConn(t, router.New(&router.Options{Limits: router.Limits{QueueBytes: 1000}}))
	_, err := router.Call[Confirmed](t.Context(), c, Confirm{strings.Repeat("x", 1000)})
	limit, ok := errors.AsType[*router.LimitExceeded](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, router.LimitQueue, limit.Kind)
	_, err = router.Call[Confirmed](t.Context(), c, reserved{})
	assert.Equal(t, errors.Internal, errors.CodeOf(err))
	_, err = router.Call[Confirmed](t.Context(), c, nil)
	assert.Equal(t, errors.Internal, errors.CodeOf(err))
	_, err = router.Call[*Confirmed](t.Context(), c, Confirm{})
	assert.ErrorContains(t, err, "the reply *router_test.Confirmed is not a value type")
	_, err = router.Call[router.Message](t.Context(), c, Confirm{})
	assert.ErrorContains(t, err, "the reply router.Message is not a value type")
}

// reserved is a message with a name of the protocol.
type reserved struct{}

func (reserved) MessageType() string { return "$ws:hello" }
