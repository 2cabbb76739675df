package outbound_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

const window = 500 * time.Millisecond

// An api stands in for a third-party API. It accepts two requests per window and reports that in
// its response headers.
type api struct {
	windowStart time.Time
	used        int
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if time.Since(a.windowStart) >= window {
		a.windowStart, a.used = time.Now(), 0
	}
	a.used++
	w.Header().Set("X-RateLimit-Limit", "2")
	w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(max(2-a.used, 0)))
	w.Header().Set("X-RateLimit-Reset-After", fmt.Sprint((window - time.Since(a.windowStart)).Seconds()))
	if a.used > 2 {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// An http.Client that waits for the third-party rate limit instead of exceeding it. Several
// processes share one budget with redisbudget.New in place of outbound.NewMemoryBudget.
func Example() {
	server := httptest.NewServer(new(api))
	defer server.Close()

	client := &http.Client{Transport: outbound.NewTransport(outbound.NewMemoryBudget(nil), nil)}

	start := time.Now()
	for range 4 {
		resp, err := client.Get(server.URL + "/channels/1/messages")
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, "in the next window:", time.Since(start) >= window)
	}
	// Output:
	// 200 in the next window: false
	// 200 in the next window: false
	// 200 in the next window: true
	// 200 in the next window: true
}
