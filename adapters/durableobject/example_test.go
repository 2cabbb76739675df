package durableobject_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

// A server limits each client address to 10 requests per second, in all regions together.
func ExampleNewLimiter() {
	client := durableobject.NewClient("https://limits.example.workers.dev", os.Getenv("LIMITER_SECRET"), nil)
	limiter := durableobject.NewLimiter(client, limit.PerSecond(10).Burst(20).Named("requests"))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("results\n"))
	})
	server := &http.Server{
		Addr: "localhost:8080",
		Handler: httplimit.New(limiter, &httplimit.Options{
			Timeout:  300 * time.Millisecond, // the Durable Object may be on another continent
			FailOpen: true,                   // without a decision, requests are admitted
		})(mux),
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

// A worker calls the limiter itself.
func ExampleLimiter() {
	client := durableobject.NewClient("https://limits.example.workers.dev", os.Getenv("LIMITER_SECRET"), nil)
	limiter := durableobject.NewLimiter(client, limit.PerMinute(100).Named("jobs"))

	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	d, err := limit.Consume(ctx, limiter, limit.Key{"tenant", "acme"}, 1)
	switch {
	case err != nil:
		fmt.Println("no decision: run or postpone the job, as your program prefers:", err)
	case d.Allowed:
		fmt.Println("run the job")
	default:
		fmt.Println("try again in", d.RetryAfter)
	}
}

// One render per user runs at a time, in all regions together.
func ExampleNewSemaphore() {
	client := durableobject.NewClient("https://limits.example.workers.dev", os.Getenv("LIMITER_SECRET"), nil)
	renders := durableobject.NewSemaphore(client, "renders", 1)

	permit, err := renders.Acquire(context.Background(), limit.Key{"user", "acme", "ann"})
	switch {
	case err != nil:
		fmt.Println("no decision:", err)
	case permit.Release == nil:
		fmt.Println("a render is in progress")
	default:
		defer permit.Release()
		fmt.Println("render")
	}
}
