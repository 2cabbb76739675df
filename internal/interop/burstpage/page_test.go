package burstpage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/router"
)

const (
	messages = 1000
	tasks    = 50

	// maxBlockedMs is half of a frame of a screen with 60 Hz.
	maxBlockedMs = 8.0
)

// said is a message of 200 bytes.
type said struct {
	Room string `json:"room"`
	User string `json:"user"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (said) MessageType() string { return "SAID" }

var message = said{"general", "ann", "The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once.", 1234567}

// TestPage_IsNotBlockedByABurst is about the worst case: the browser passes all messages of a burst to
// the client in one task. The shortest of many such tasks shows the work of the client even on a busy
// machine. The other times are printed only: they depend on the browser and the machine, and are those
// of a page without a client, too.
func TestPage_IsNotBlockedByABurst(t *testing.T) {
	r, url := serve(t)
	browser := browsertest.Start(t)
	for name, withClient := range map[string]bool{"client": true, "without a client": false} {
		page := browsertest.Open(browser, t, url)
		browsertest.Eval[any](page, fmt.Sprintf("void burst.connect(%t)", withClient))
		page.WaitFor("burst.connected")
		browsertest.Eval[any](page, "void burst.probe()")
		for range messages {
			require.NoError(t, r.Publish("all", message))
		}
		page.WaitEqual("burst.handled()", messages)
		t.Logf("%s: longest time between two tasks of the page, and most messages: %s", name, browsertest.Eval[string](page, "burst.probed()"))

		frame, err := json.Marshal(map[string]any{"type": "SAID", "meta": map[string]int64{"timestamp": 1730000000000}, "payload": message})
		require.NoError(t, err)
		browsertest.Eval[any](page, fmt.Sprintf("void burst.measure(%q, %d, %d)", frame, messages, tasks))
		page.WaitFor("burst.shortest")
		shortest := browsertest.Eval[float64](page, "burst.shortest")
		t.Logf("%s: %d messages in one task take %.1f ms", name, messages, shortest)
		if withClient {
			assert.LessOrEqual(t, shortest, maxBlockedMs)
		}
	}
}

// serve serves the page, whose client is that of the chat page.
func serve(t *testing.T) (r *router.Router, url string) {
	r = router.New(&router.Options{
		Limits: router.Limits{QueueMessages: 2 * messages},
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") },
	})
	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	mux.Handle("/", http.FileServer(http.Dir("testdata")))
	mux.HandleFunc("/penstock-client.js", func(w http.ResponseWriter, req *http.Request) {
		http.ServeFile(w, req, "../../../examples/chat/page/penstock-client.js")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return r, server.URL
}
