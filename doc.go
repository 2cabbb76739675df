// Package penstock is a WebSocket message router whose ingress decides, before
// a payload is read, whether a message may enter. The code is in the packages
// below; this is a whole program:
//
//	type Say struct {
//		Text string `json:"text"`
//	}
//
//	func (Say) MessageType() string { return "SAY" }
//
//	func main() {
//		limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//
//		r := router.New(&router.Options{OnOpen: func(_ context.Context, c *router.Conn) error {
//			return c.Subscribe("lobby")
//		}})
//		r.UseIngress(ratelimit.New(limiter, nil)) // before the payload is read
//		router.On(r, func(ctx *router.Context, m Say) error {
//			return ctx.Publish("lobby", m)
//		})
//
//		http.Handle("/ws", r)
//		log.Fatal(http.ListenAndServe(":8080", nil))
//	}
//
// Start with package router, which holds the way of a message, and package
// middleware/ratelimit, which holds the limits. The repository's docs folder has
// the protocol and the guides.
package penstock
