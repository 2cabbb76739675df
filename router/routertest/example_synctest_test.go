//go:build !js

package routertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// Compute is a call that takes too long.
type Compute struct{}

func (Compute) MessageType() string { return "COMPUTE" }

// Computed is the reply to Compute.
type Computed struct{}

func (Computed) MessageType() string { return "COMPUTED" }

// compute is the handler under test.
func compute(*router.Context, Compute) (Computed, error) {
	time.Sleep(time.Hour)
	return Computed{}, nil
}

// Testing a deadline in virtual time. Inside a testing/synctest bubble, this test takes
// milliseconds.
func Example_synctest() {
	var t *testing.T // the parameter of func TestCompute(t *testing.T)

	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: 5 * time.Second}})
		router.RPC(r, compute)
		conn := routertest.Dial(t, r)

		start := time.Now()
		if err := routertest.CallError(conn, Compute{}); err.Code != errors.DeadlineExceeded {
			t.Errorf("error is %v", err)
		}
		if elapsed := time.Since(start); elapsed != 5*time.Second {
			t.Errorf("the answer took %v", elapsed)
		}
		time.Sleep(time.Hour) // the bubble ends after the handler has returned
	})
}
