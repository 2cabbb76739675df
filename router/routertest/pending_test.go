//go:build !js

package routertest_test

import (
	"fmt"
	"iter"
	"testing"

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
