package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

// FindPage is a call.
type FindPage struct {
	Title string `json:"title"`
}

func (FindPage) MessageType() string { return "FIND_PAGE" }

// Page is the reply to FindPage.
type Page struct {
	Text string `json:"text"`
}

func (Page) MessageType() string { return "PAGE" }

// messageCounter counts answered messages by type and code. Package middleware/metrics is an
// observer for Prometheus.
type messageCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

// observe is called by many goroutines at once.
func (c *messageCounter) observe(e observe.Event) {
	if e.Kind != observe.Completed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[fmt.Sprintf("%s %q", e.Type, e.Code)]++
}

// An observer receives an Event for everything that the router does.
func ExampleRouter_Observe() {
	counter := &messageCounter{counts: map[string]int{}}
	r := router.New(nil)
	r.Observe(counter.observe)
	router.RPC(r, func(_ *router.Context, m FindPage) (Page, error) {
		if m.Title != "home" {
			return Page{}, errors.Errorf(errors.NotFound, "there is no page %q", m.Title)
		}
		return Page{Text: "Welcome"}, nil
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	for _, title := range []string{"home", "home", "about"} {
		find := FindPage{Title: title}
		if err := wsjson.Write(ctx, ws, map[string]any{"type": find.MessageType(), "payload": find}); err != nil {
			log.Fatal(err)
		}
		if _, _, err := ws.Read(ctx); err != nil {
			log.Fatal(err)
		}
	}
	counter.mu.Lock()
	defer counter.mu.Unlock()
	fmt.Println(counter.counts)
	// Output:
	// map[FIND_PAGE "":2 FIND_PAGE "NOT_FOUND":1]
}
