package router_test

import (
	"testing"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestDevelopment_ExplainsPresenceThatATopicDoesNotHave for clients that have greeted, as those of the libraries do: package
// routertest always asks for it.
func TestDevelopment_ExplainsPresenceThatATopicDoesNotHave(t *testing.T) {
	opts, records := developing(router.Options{})
	r := router.New(opts)
	router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
	router.Topic(r, "room", &router.TopicOptions{Authorize: permit, Presence: true})
	conn := routertest.Dial(t, r)
	conn.Greet()
	for range 2 {
		routertest.Subscribe(conn, "news")
		routertest.Subscribe(conn, "room")
	}
	checkHint(t, logRecord{
		Msg: "presence requested: the pattern has none", Topic: "news", Remedy: "set TopicOptions.Presence of the pattern registered at ",
	}, records())
}
