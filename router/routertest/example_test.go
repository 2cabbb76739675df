//go:build !js

package routertest_test

import (
	"fmt"
	"testing"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// Greet is a call.
type Greet struct {
	Name string `json:"name"`
}

func (Greet) MessageType() string { return "GREET" }

// Greeted is the reply to Greet.
type Greeted struct {
	Text string `json:"text"`
}

func (Greeted) MessageType() string { return "GREETED" }

// greet is the handler under test.
func greet(_ *router.Context, m Greet) (Greeted, error) {
	if m.Name == "" {
		return Greeted{}, errors.Errorf(errors.InvalidArgument, "the name is empty")
	}
	return Greeted{Text: "Hello, " + m.Name}, nil
}

// Testing a handler of calls.
func Example() {
	t := new(testing.T) // in a test: the parameter of func TestGreet(t *testing.T)

	r := router.New(nil)
	router.RPC(r, greet)
	conn := routertest.Dial(t, r)
	defer conn.Close() // in a test: done by t.Cleanup

	if reply := routertest.Call[Greeted](conn, Greet{Name: "ann"}); reply.Text != "Hello, ann" {
		t.Errorf("reply is %q", reply.Text)
	}
	if err := routertest.CallError(conn, Greet{}); err.Code != errors.InvalidArgument {
		t.Errorf("error is %v", err)
	}
	fmt.Println("failed:", t.Failed())
	// Output: failed: false
}
