package router_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
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
