//go:build !js

package routertest_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// Count is a stream of the numbers from 1 to To.
type Count struct {
	To int `json:"to"`
}

func (Count) MessageType() string { return "COUNT" }

// count is the handler under test.
func count(_ *router.Context, m Count) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := 1; n <= m.To; n++ {
			if !yield(n, nil) {
				return
			}
		}
	}
}

// Testing a stream: all of its items, and an abort after the first one.
func ExampleStart() {
	t := new(testing.T) // in a test: the parameter of func TestCount(t *testing.T)

	r := router.New(nil)
	router.Stream(r, count)
	conn := routertest.Dial(t, r)
	defer conn.Close() // in a test: done by t.Cleanup

	stream := routertest.Start(conn, Count{To: 3}, routertest.Credit(2))
	for n := range routertest.Items[int](stream) {
		fmt.Println("item", n)
	}
	stream.End()

	stream = routertest.Start(conn, Count{To: 1_000_000}, routertest.Credit(1))
	fmt.Println("item", routertest.NextItem[int](stream))
	stream.Abort()
	fmt.Println(routertest.ReceiveAnswerError(stream).Code)

	fmt.Println("failed:", t.Failed())
	// Output:
	// item 1
	// item 2
	// item 3
	// item 1
	// CANCELLED
	// failed: false
}

func TestPending_GrantPermitsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Stream(r, count)
		conn := routertest.Dial(t, r)
		stream := routertest.Start(conn, Count{To: 10}, routertest.Credit(0))
		for want := range 10 {
			synctest.Wait()
			assert.Zero(t, conn.Pending())
			stream.Grant(1)
			assert.Equal(t, want+1, routertest.NextItem[int](stream))
		}
		stream.End()
	})
}

// TestPending_AnswerKeepsItemsQueued receives the answer before the items, and the answers of two
// streams in the other order.
func TestPending_AnswerKeepsItemsQueued(t *testing.T) {
	r := router.New(nil)
	router.Stream(r, count)
	conn := routertest.Dial(t, r)
	first, second := routertest.Start(conn, Count{To: 2}), routertest.Start(conn, Count{To: 1})
	assert.NotEqual(t, first.ID(), second.ID())
	second.End()
	first.End()
	first.End() // again
	assert.Equal(t, 3, conn.Pending())
	assert.Equal(t, []int{1, 2}, slices.Collect(routertest.Items[int](first)))
	assert.Equal(t, 1, routertest.NextItem[int](second))
}

func TestStart_TimeoutIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.RPC(r, compute)
		call := routertest.Start(routertest.Dial(t, r), Compute{}, routertest.Timeout(3*time.Second))
		start := time.Now()
		assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveAnswerError(call).Code)
		assert.Equal(t, 3*time.Second, time.Since(start))
		time.Sleep(time.Hour)
	})
}
