//go:build !js

package routertest_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestDial_OptionsSetRequest(t *testing.T) {
	requests := make(chan *http.Request, 1)
	r := router.New(&router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
		requests <- req
		return router.Identity{}, nil
	}})
	routertest.Dial(t, r, routertest.Token("a b"), routertest.Header("X-Test", "1"), routertest.RemoteAddr("192.0.2.9:1"))
	req := <-requests
	assert.Equal(t, "a b", router.Token(req))
	assert.Equal(t, "1", req.Header.Get("X-Test"))
	assert.Equal(t, "192.0.2.9:1", req.RemoteAddr)
	routertest.Dial(t, r)
	assert.Equal(t, "192.0.2.1:1234", (<-requests).RemoteAddr)
}

func TestRefused_ReturnsResponse(t *testing.T) {
	resp := routertest.Refused(t, http.NotFoundHandler())
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestCallError_ReturnsDeadlineInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: 5 * time.Second}})
		router.RPC(r, compute)
		conn := routertest.Dial(t, r)
		start := time.Now()
		assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(conn, Compute{}).Code)
		assert.Equal(t, 5*time.Second, time.Since(start))
		time.Sleep(time.Hour)
	})
}

func TestCall_KeepsOtherMessagesQueued(t *testing.T) {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m Greet) (Greeted, error) {
		if err := ctx.Progress(1); err != nil {
			return Greeted{}, err
		}
		return Greeted{Text: m.Name}, ctx.Send(Compute{})
	})
	conn := routertest.Dial(t, r)
	assert.Equal(t, Greeted{Text: "ann"}, routertest.Call[Greeted](conn, Greet{Name: "ann"}))
	assert.Equal(t, "$ws:rpc-progress", conn.Next().Type)
	assert.Equal(t, Compute{}, routertest.Receive[Compute](conn))
}

func TestConn_PauseStopsReadingUntilResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		conn := routertest.Dial(t, r)
		synctest.Wait()
		conn.Pause()
		for c := range r.Conns() {
			for range 10 {
				require.NoError(t, c.Send(Compute{}))
				synctest.Wait()
			}
		}
		assert.LessOrEqual(t, conn.Pending(), 1)
		conn.Resume()
		synctest.Wait()
		assert.Equal(t, 10, conn.Pending())
	})
}

func TestConn_EndIsReportedToServer(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*routertest.Conn)
		want router.CloseError
	}{
		"close":             {(*routertest.Conn).Close, router.CloseError{Code: router.StatusNormal}},
		"close with a code": {func(c *routertest.Conn) { c.CloseWith(4000, "done") }, router.CloseError{Code: 4000, Reason: "done"}},
		"abort":             {(*routertest.Conn).Abort, router.CloseError{Code: router.StatusAbnormal}},
		"freeze":            {(*routertest.Conn).Freeze, router.CloseError{Code: router.StatusAbnormal}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := make(chan router.CloseError, 1)
				r := router.New(&router.Options{OnClose: func(_ *router.Conn, end router.CloseError) { ends <- end }})
				conn := routertest.Dial(t, r)
				synctest.Wait()
				tt.end(conn)
				select {
				case end := <-ends:
					assert.Equal(t, tt.want, end)
				case <-time.After(time.Minute):
					t.Fatal("the server did not notice the end within a minute")
				}
			})
		})
	}
}

func TestConn_ClosedReturnsCloseFrameOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		conn := routertest.Dial(t, r)
		synctest.Wait()
		for c := range r.Conns() {
			c.Close(4001, "done")
		}
		assert.Equal(t, router.CloseError{Code: 4001, Reason: "done"}, conn.Closed())
	})
}
