//go:build linux

package faults_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// Flood makes the server send messages: N publications, or N messages to the client itself.
type Flood struct {
	N  int  `json:"n"`
	Me bool `json:"me"`
}

func (Flood) MessageType() string { return "FLOOD" }

// Said is a message in a room.
type Said struct {
	N int `json:"n"`
}

func (Said) MessageType() string { return "SAID" }

// A transport is how the server of a test is reached.
type transport struct {
	name  string
	tls   bool
	plain bool // without an event loop, as on other systems
}

var transports = []transport{{name: "plain"}, {name: "TLS", tls: true}, {name: "without epoll", plain: true}, {name: "TLS without epoll", tls: true, plain: true}}

// opaqueListener hides the sockets of its connections, so that no event loop can use them.
type opaqueListener struct{ net.Listener }

func (l opaqueListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return struct{ net.Conn }{conn}, err
}

// listen starts a server.
func (tr transport) listen(t *testing.T, r *router.Router) (url string, client *http.Client) {
	server := httptest.NewUnstartedServer(r)
	if tr.plain {
		server.Listener = opaqueListener{server.Listener}
	}
	client = http.DefaultClient
	if tr.tls {
		server.TLS = testcert.ServerConfig()
		server.StartTLS()
		client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the test's own server
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		assert.NoError(t, r.Shutdown(context.Background()))
		server.Close()
	})
	return server.URL, client
}

// TestFlood_DisconnectsNoClientThatReads lets one member of a room send more than the send queues of the others
// hold, while they read.
func TestFlood_DisconnectsNoClientThatReads(t *testing.T) {
	const messages = 3000
	floods := []roomFlood{
		{name: "publications of a handler each", send: repeated(`{"type":"SAID","payload":{}}`, messages), all: messages, first: messages},
		{name: "publications of one handler", send: []string{fmt.Sprintf(`{"type":"FLOOD","payload":{"n":%d}}`, messages)}, all: messages, first: messages},
		{name: "messages of one handler", send: []string{fmt.Sprintf(`{"type":"FLOOD","payload":{"n":%d,"me":true}}`, messages)}, first: messages},
	}
	for _, procs := range testscale.SoakSample([]int{1, 2, 4}, 1) {
		for _, tr := range testscale.Sample(transports, 1) {
			for _, flood := range testscale.SoakSample(floods, 1) {
				t.Run(fmt.Sprintf("%d %s %s", procs, tr.name, flood.name), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					// A busy machine may stop the thread that writes to one member for so long that the member
					// does not read, as far as the server can know.
					var err error
					for range 3 {
						if err = flood.run(t, tr); err == nil {
							return
						}
						t.Log(err)
					}
					t.Error("a member was disconnected each time")
				})
			}
		}
	}
}

// A roomFlood is what one member of a room sends.
type roomFlood struct {
	name  string
	send  []string
	all   int // how many messages each other member receives
	first int // and the first
}

// run returns the error of a member that does not receive all messages.
func (f roomFlood) run(t *testing.T, tr transport) error {
	const members = 20
	var ready sync.WaitGroup
	ready.Add(members)
	url, client := tr.listen(t, newFloodRouter(t, ready.Done))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	errs := make([]error, members)
	var done sync.WaitGroup
	for n := range members {
		done.Go(func() {
			ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client})
			if err != nil {
				errs[n] = err
				ready.Done()
				return
			}
			defer ws.CloseNow()
			ready.Wait()
			want := f.all
			if n == 0 {
				want = f.first
				go sendAll(ctx, ws, f.send)
			}
			for received := range want {
				if _, _, err := ws.Read(ctx); err != nil {
					errs[n] = fmt.Errorf("member %d after %d messages: %w", n, received, err)
					return
				}
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// newFloodRouter returns a router with the default limits, but without rates. It calls opened when a client
// is a member.
func newFloodRouter(t *testing.T, opened func()) *router.Router {
	unlimited := router.Rate{PerSecond: router.Unlimited}
	r := router.New(&router.Options{
		Limits: router.Limits{MessagesPerConn: unlimited, MessagesPerIP: unlimited},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			defer opened()
			return c.Subscribe("room")
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	router.On(r, func(ctx *router.Context, m Said) error { return ctx.Publish("room", m) })
	router.On(r, func(ctx *router.Context, m Flood) error {
		for n := range m.N {
			var err error
			if m.Me {
				err = ctx.Send(Said{N: n})
			} else {
				err = ctx.Publish("room", Said{N: n})
			}
			require.NoError(t, err)
		}
		return nil
	})
	return r
}

func sendAll(ctx context.Context, ws *websocket.Conn, messages []string) {
	for _, m := range messages {
		if ws.Write(ctx, websocket.MessageText, []byte(m)) != nil {
			return // the reader reports it
		}
	}
}

func repeated(text string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}
