package boardpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/redistest"
)

var program = exampletest.Example{Name: "board"}

func TestMain(m *testing.M) { program.Main(m) }

// A site serves the pages, behind a proxy that can cut connections.
type site struct {
	t          *testing.T
	board      *exampletest.Program
	proxy      *redistest.Proxy
	handshakes atomic.Int64
	open       atomic.Int64 // connections
	users      int          // that publish has used
}

func startSite(t *testing.T, pages string) *site {
	t.Helper()
	s := &site{t: t, board: program.Start(t, "-pages="+pages)}
	forward := s.board.Forward()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			s.handshakes.Add(1)
			s.open.Add(1)
			defer s.open.Add(-1)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.proxy = redistest.StartProxy(t, server.Listener.Addr().String())
	return s
}

// What clients send and receive.
type (
	postNote struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	notePosted struct{}
	note       struct {
		ID     string `json:"id"`
		Author string `json:"author"`
		Text   string `json:"text"`
	}
	noteRemoved struct {
		ID string `json:"id"`
	}
)

func (postNote) MessageType() string    { return "POST_NOTE" }
func (notePosted) MessageType() string  { return "NOTE_POSTED" }
func (note) MessageType() string        { return "NOTE" }
func (noteRemoved) MessageType() string { return "NOTE_REMOVED" }

// connect returns a client of the board, which does not connect through the proxy.
func (s *site) connect(name string) *client.Client {
	s.t.Helper()
	c := client.New("ws://"+s.board.Addr+"/ws", &client.Options{
		Token: func(context.Context, bool) (string, error) { return name, nil },
	})
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// notesPerConn is how many notes the board accepts at once from a connection.
const notesPerConn = 3

// publish posts notes whose texts are prefix and a number from 1, as users who are not present. No limit
// of the board delays it, because a few notes are by the same user.
func (s *site) publish(prefix string, n int) (shown []string) {
	s.t.Helper()
	var c *client.Client
	for i := range n {
		if i%notesPerConn == 0 {
			s.users++
			c = s.connect(fmt.Sprint("eve", s.users))
		}
		text := fmt.Sprint(prefix, i+1)
		_, err := client.Call[notePosted](s.t.Context(), c, postNote{text, text})
		require.NoError(s.t, err)
		shown = append(shown, fmt.Sprint("eve", s.users, ": ", text))
	}
	return shown
}

// A watcher is a client that subscribes to the board.
type watcher struct {
	t *testing.T

	mu    sync.Mutex
	ids   []string // of the notes, oldest first
	notes map[string]string
}

func (s *site) watch() *watcher {
	s.t.Helper()
	w := &watcher{t: s.t, notes: map[string]string{}}
	c := s.connect("watcher")
	client.On(c, func(m note, _ *client.Received) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ids = append(w.ids, m.ID)
		w.notes[m.ID] = m.Author + ": " + m.Text
	})
	client.On(c, func(m noteRemoved, _ *client.Received) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ids = slices.DeleteFunc(w.ids, func(id string) bool { return id == m.ID })
	})
	_, err := c.Subscribe(s.t.Context(), "board", &client.SubscribeOptions{State: true})
	require.NoError(s.t, err)
	return w
}

// waitNotes waits until the board has exactly these notes.
func (w *watcher) waitNotes(want ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		var notes []string
		for _, id := range w.ids {
			notes = append(notes, w.notes[id])
		}
		return slices.Equal(want, notes)
	}, browsertest.Timeout, time.Millisecond, "%q", want)
}
