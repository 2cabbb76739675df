package wskit_test

import (
	"iter"
	"testing"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestWebSocket_ReadsStreams(t *testing.T) { runNode(t, "streams.test.mjs", streams) }

var streams = feature{register: func(r *router.Router) { router.Stream(r, list) }}

// A List is a stream of N items. End is "reply" for a reply of the application at the end, or
// "error".
type List struct {
	N   int    `json:"n"`
	End string `json:"end"`
}

func (List) MessageType() string { return "LIST" }

type Item struct {
	I int `json:"i"`
}

type ListEnd struct {
	Count int `json:"count"`
}

func (ListEnd) MessageType() string { return "LIST_END" }

func list(ctx *router.Context, m List) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for i := range m.N {
			if !yield(Item{i}, nil) {
				return
			}
		}
		switch m.End {
		case "reply":
			ctx.SetReply(ListEnd{m.N})
		case "error":
			yield(Item{}, errors.Errorf(errors.NotFound, "the list has no end"))
		}
	}
}
