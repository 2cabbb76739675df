package outbound_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/penstock-go/penstock/outbound"
)

// Discord's limits depend on the method and on the channel, guild or webhook ID in the path. The
// route must contain these IDs and no others.
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
	_ = outbound.NewTransport(outbound.NewMemoryBudget(nil), &outbound.Options{Route: route})

	req := httptest.NewRequest(http.MethodPatch, "https://discord.com/channels/41/messages/97", http.NoBody)
	fmt.Println(route(req))
	// Output: PATCH /channels/41/messages/id
}

func ExampleParseHeaders() {
	resp := http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	resp.Header.Set("X-RateLimit-Limit", "5")
	resp.Header.Set("X-RateLimit-Remaining", "0")
	resp.Header.Set("X-RateLimit-Reset-After", "1.25")

	status := outbound.ParseHeaders(resp.StatusCode, resp.Header)
	fmt.Println(status.Remaining, "of", status.Limit, "requests remain; the window ends in", status.ResetAfter)
	// Output: 0 of 5 requests remain; the window ends in 1.25s
}
