package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/httplimit"
	"github.com/penstock-go/penstock/router"
)

// Each client address has a bucket of 10 tokens, of which a search takes 6. The server is behind a
// proxy in the network 10.0.0.0/8.
func ExampleNew() {
	limitRequests := httplimit.New(memory.NewLimiter(limit.PerHour(10)), &httplimit.Options{
		Cost: func(req *http.Request) int64 {
			if req.URL.Path == "/search" {
				return 6
			}
			return 1
		},
		TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "results") })
	server := httptest.NewServer(limitRequests(mux)) // in a program, an http.Server
	defer server.Close()

	for range 2 {
		resp, err := http.Get(server.URL + "/search")
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Printf("%d, %s, wait %q\n", resp.StatusCode, resp.Header.Get("RateLimit"), resp.Header.Get("Retry-After"))
	}
	// Output:
	// 200, "http";r=4;t=2160, wait ""
	// 429, "http";r=4;t=720, wait "720"
}

// Every user has a bucket for each route, and so has every network of clients without a user.
func ExampleOptions_key() {
	limitRequests := httplimit.New(memory.NewLimiter(limit.PerHour(1)), &httplimit.Options{
		Key: func(req *http.Request, ip netip.Addr) limit.Key {
			key := httplimit.KeyPerIP(req, ip)
			if user, _, ok := req.BasicAuth(); ok { // which a middleware in front of this one has verified
				key = limit.Key{"user", "", user}
			}
			key[3] = req.Pattern
			return key
		},
	})
	mux := http.NewServeMux()
	for _, route := range []string{"GET /users/{id}", "GET /search"} { // inside the mux, so that requests have a pattern
		mux.Handle(route, limitRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}

	for _, user := range []string{"", "ann", "ann"} {
		for _, path := range []string{"/users/7", "/users/8", "/search"} {
			req := httptest.NewRequest(http.MethodGet, path, nil)
			if user != "" {
				req.SetBasicAuth(user, "secret")
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, req)
			fmt.Printf("%q %s: %d\n", user, path, w.Code)
		}
	}
	// Output:
	// "" /users/7: 200
	// "" /users/8: 429
	// "" /search: 200
	// "ann" /users/7: 200
	// "ann" /users/8: 429
	// "ann" /search: 200
	// "ann" /users/7: 429
	// "ann" /users/8: 429
	// "ann" /search: 429
}

// A login needs a token of its address and one of the name, so that neither one client nor many can
// try the passwords of a user. A rejected request takes neither.
func ExampleNewAll() {
	limitLogins := httplimit.NewAll([]httplimit.Rule{
		{Limiter: memory.NewLimiter(limit.PerHour(3).Named("address"))},
		{Limiter: memory.NewLimiter(limit.PerHour(2).Named("name")), Key: func(req *http.Request, _ netip.Addr) limit.Key {
			return limit.Key{"user", "", req.FormValue("name")}
		}},
	}, nil)
	login := limitLogins(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, name := range []string{"ann", "ann", "ann", "bob", "bob"} {
		w := httptest.NewRecorder()
		login.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login?name="+name, nil))
		fmt.Println(name, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ann 200 "name";r=1;t=1800
	// ann 200 "name";r=0;t=3600
	// ann 429 "name";r=0;t=1800
	// bob 200 "address";r=0;t=3600
	// bob 429 "address";r=0;t=1200
}

// In front of a router, the middleware limits connection attempts.
func ExampleNew_connectionAttempts() {
	r := router.New(nil)
	limitAttempts := httplimit.New(memory.NewLimiter(limit.PerHour(1)), nil)
	server := httptest.NewServer(limitAttempts(r))
	defer server.Close()
	for range 2 {
		resp, err := http.Get(server.URL) // a WebSocket client would send a handshake
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Printf("%d, wait %q\n", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	// Output:
	// 426, wait ""
	// 429, wait "3600"
}
