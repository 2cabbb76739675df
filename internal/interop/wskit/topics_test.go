package wskit_test

import (
	"testing"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestWebSocket_SubscribesToTopics(t *testing.T) { runNode(t, "topics.test.mjs", topics) }

// topics declares rooms, to which clients may subscribe without a handler. Their presence is sent only
// to clients that ask for it.
var topics = feature{register: func(r *router.Router) {
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: mayRead, Presence: true, MaxPerConn: 2})
	router.Topic(r, "news", nil)
	router.On(r, func(ctx *router.Context, m Room) error {
		if m.Enter {
			return ctx.Subscribe("room/go")
		}
		return ctx.Publish("room/go", Note{"to the room"})
	})
}}

func mayRead(_ *router.Context, name router.TopicMatch) error {
	if name.Value("id") == "secret" {
		return errors.Errorf(errors.PermissionDenied, "%s is secret", name)
	}
	return nil
}

// Room is an event whose handler subscribes the connection to room/go, or publishes to it.
type Room struct {
	Enter bool `json:"enter"`
}

func (Room) MessageType() string { return "ROOM" }
