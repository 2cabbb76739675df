package router_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type Say struct {
	Room string `json:"room"`
	Text string `json:"text"`
}

func (Say) MessageType() string { return "SAY" }

func (m Say) Validate() error {
	if m.Text == "" {
		return errors.InvalidField("text", "must not be empty")
	}
	return nil
}

type Echo struct {
	N int `json:"n"`
}

func (Echo) MessageType() string { return "ECHO" }

type Echoed struct {
	N int `json:"n"`
}

func (Echoed) MessageType() string { return "ECHOED" }

func echo(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), nil }

func TestTypes_AreSafeDuringRegistration(t *testing.T) {
	r := router.New(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for slices.Collect(r.Types()) == nil {
		}
	})
	router.On(r, func(*router.Context, Say) error { return nil })
	router.RPC(r, echo)
	wg.Wait()
	assert.ElementsMatch(t, []string{"ECHO", "SAY"}, slices.Collect(r.Types()))
}

func TestRouter_HandlesEventsAndCalls(t *testing.T) {
	r := router.New(nil)
	router.On(r, func(ctx *router.Context, m Say) error {
		if err := ctx.Subscribe(m.Room); err != nil {
			return err
		}
		return ctx.Publish(m.Room, m)
	})
	router.RPC(r, echo)

	conn := routertest.Dial(t, r)
	conn.Send(Say{Room: "go", Text: "hi"})
	assert.Equal(t, Say{Room: "go", Text: "hi"}, routertest.Receive[Say](conn))
	assert.Equal(t, Echoed{N: 7}, routertest.Call[Echoed](conn, Echo{N: 7}))
}
