package wskit_test

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/router"
)

func TestWebSocket_ResumesSession(t *testing.T) { runNode(t, "sessions.test.mjs", sessions) }

// sessions declares rooms with a history. Clients that do not ask for positions or for a session
// receive their publications like any message.
var sessions = feature{
	configure: func(opts *router.Options) { opts.Resume = router.ResumeOptions{Within: time.Minute} },
	register: func(r *router.Router) {
		router.Topic(r, "log/{id}", &router.TopicOptions{
			Authorize: func(*router.Context, router.TopicMatch) error { return nil },
			History:   router.History{Messages: 100},
		})
		router.On(r, func(ctx *router.Context, m Log) error {
			if m.Follow {
				return ctx.Subscribe("log/server")
			}
			return ctx.Publish("log/server", Note{"logged"})
		})
	},
}

// Log is an event whose handler subscribes the connection to log/server, or publishes to it.
type Log struct {
	Follow bool `json:"follow"`
}

func (Log) MessageType() string { return "LOG" }
