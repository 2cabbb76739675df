package outbound_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/outbound"
)

// The API admits two requests in half a second, and says so.
func ExampleNewTransport() {
	began, used := time.Time{}, 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const window = 500 * time.Millisecond
		if time.Since(began) >= window {
			began, used = time.Now(), 0
		}
		used++
		w.Header().Set("X-RateLimit-Limit", "2")
		w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(max(2-used, 0)))
		w.Header().Set("X-RateLimit-Reset-After", fmt.Sprint((window - time.Since(began)).Seconds()))
		if used > 2 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	client := &http.Client{Transport: outbound.NewTransport(memory.NewWindows(nil), nil)}
	start := time.Now()
	for range 4 {
		resp, err := client.Get(api.URL + "/channels/1/messages")
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, time.Since(start) >= 500*time.Millisecond)
	}
	// Output:
	// 200 false
	// 200 false
	// 200 true
	// 200 true
}

// Discord counts by the method, and by the channel, guild or webhook in the path.
func ExampleOptions_route() {
	route := func(req *http.Request) string {
		parts := strings.Split(req.URL.Path, "/")
		for i := range parts {
			isID := strings.Trim(parts[i], "0123456789") == "" && parts[i] != ""
			if isID && !strings.Contains("channels guilds webhooks", parts[i-1]) {
				parts[i] = "id"
			}
		}
		return req.Method + " " + strings.Join(parts, "/")
	}
	_ = outbound.NewTransport(memory.NewWindows(nil), &outbound.Options{Route: route})
	req := httptest.NewRequest(http.MethodPatch, "https://discord.com/channels/41/messages/97", http.NoBody)
	fmt.Println(route(req))
	// Output: PATCH /channels/41/messages/id
}

func ExampleParseHeaders() {
	resp := http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	resp.Header.Set("X-RateLimit-Limit", "5")
	resp.Header.Set("X-RateLimit-Remaining", "0")
	resp.Header.Set("X-RateLimit-Reset-After", "1.25")
	told := outbound.ParseHeaders(resp.StatusCode, resp.Header)
	fmt.Println(told.Remaining, "of", told.Limit, "for", told.ResetAfter)
	// Output: 0 of 5 for 1.25s
}
