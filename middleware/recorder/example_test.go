package recorder_test

import (
	"log"
	"os"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/recorder"
	"github.com/penstock-go/penstock/router"
)

// A trace of one day of production shows which policy rejects only abusive clients:
//
//	penstock simulate -suggest p99 trace
func Example() {
	directory, err := os.MkdirTemp("", "trace")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(directory) }()
	rec, err := recorder.New(directory, &recorder.Options{
		MaxBytes: 64 << 20,
		OnError:  func(err error) { log.Print(err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := rec.Close(); err != nil {
			log.Print(err)
		}
	}()

	r := router.New(nil)
	r.UseIngress(rec.Record) // before the limit, so that it records what the limit rejects
	r.UseIngress(ratelimit.New(memory.NewLimiter(limit.PerSecond(10).Burst(20)), nil))
	// Output:
}
