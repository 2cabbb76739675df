package router_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

// The server itself follows a topic, for example to keep a search index. It stores the position of the last message
// with the index, and passes it after a restart.
func ExampleRouter_Follow() {
	r := router.New(nil)
	router.Topic(r, "news/{section}", &router.TopicOptions{History: router.History{Messages: 100, Age: time.Hour}})
	for _, text := range []string{"one", "two"} {
		if err := r.Publish("news/go", Headline{text}); err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for m, err := range r.Follow(ctx, "news/go", broker.Position{}) {
		if err != nil {
			log.Fatal(err) // of ctx; or messages are lost, and the index must be built again
		}
		var headline Headline
		if err := m.Decode(&headline); err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Position.Offset, headline.Text)
		if m.Position.Offset == 2 {
			break
		}
	}
	// Output:
	// 1 one
	// 2 two
}
