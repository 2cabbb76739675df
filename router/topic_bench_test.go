package router_test

import (
	"fmt"
	"testing"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// BenchmarkTopic_Declared publishes without subscribers on this node, and subscribes and
// unsubscribes, with and without 100 declared patterns.
func BenchmarkTopic_Declared(b *testing.B) {
	for _, patterns := range []int{0, 100} {
		r := router.New(&router.Options{Limits: rarelyReached()})
		for i := range patterns {
			router.Topic(r, fmt.Sprintf("kind%d/{id}", i), nil)
		}
		b.Run(fmt.Sprintf("patterns=%d/subscribers=0", patterns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Publish("kind7/4711", Nothing{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		client := routertest.Dial(b, r)
		client.Freeze()
		for c := range r.Conns() {
			b.Run(fmt.Sprintf("patterns=%d/subscribe", patterns), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.Subscribe("kind7/4711"); err != nil {
						b.Fatal(err)
					}
					c.Unsubscribe("kind7/4711")
				}
			})
		}
	}
}
