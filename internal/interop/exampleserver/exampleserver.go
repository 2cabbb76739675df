// Package exampleserver is the server of the examples in the README.md of the Python and the Kotlin client, for their tests.
package exampleserver

import (
	"context"
	"encoding/pem"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// The messages of the examples.
type (
	say struct {
		Room string `json:"room"`
		Text string `json:"text"`
	}
	said struct {
		Text string `json:"text"`
	}
	getHistory struct {
		Room string `json:"room"`
	}
	history struct {
		Texts []string `json:"texts"`
	}
	exportRows struct {
		Count int `json:"count"`
	}
	exportedRow struct {
		ID int `json:"id"`
	}
	rowsExported struct {
		Rows int `json:"rows"`
	}
	deleteRoom struct {
		Room string `json:"room"`
	}
	roomDeleted struct {
		Deleted bool `json:"deleted"`
	}
	askUser struct {
		Question string `json:"question"`
	}
	userAnswer struct {
		Yes bool `json:"yes"`
	}
	echo struct {
		N int `json:"n"`
	}
	wait struct{}
)

func (say) MessageType() string          { return "SAY" }
func (said) MessageType() string         { return "SAID" }
func (getHistory) MessageType() string   { return "GET_HISTORY" }
func (history) MessageType() string      { return "HISTORY" }
func (exportRows) MessageType() string   { return "EXPORT_ROWS" }
func (rowsExported) MessageType() string { return "ROWS_EXPORTED" }
func (deleteRoom) MessageType() string   { return "DELETE_ROOM" }
func (roomDeleted) MessageType() string  { return "ROOM_DELETED" }
func (askUser) MessageType() string      { return "ASK_USER" }
func (userAnswer) MessageType() string   { return "USER_ANSWER" }
func (echo) MessageType() string         { return "ECHO" }
func (wait) MessageType() string         { return "WAIT" }

// A rooms is what was said in each room.
type rooms struct {
	router *router.Router

	mu    sync.Mutex
	texts map[string][]string
}

func (r *rooms) say(_ *router.Context, m say) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts[m.Room] = append(r.texts[m.Room], m.Text)
	return r.router.Publish("room/"+m.Room, said{m.Text})
}

func (r *rooms) history(_ *router.Context, m getHistory) (history, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := r.texts[m.Room]
	if texts == nil {
		return history{}, errors.Errorf(errors.NotFound, "room %q does not exist", m.Room)
	}
	return history{texts}, nil
}

func export(c *router.Context, m exportRows) iter.Seq2[exportedRow, error] {
	c.SetReply(rowsExported{m.Count})
	return func(yield func(exportedRow, error) bool) {
		for i := range m.Count {
			if !yield(exportedRow{i}, nil) {
				return
			}
		}
	}
}

func askAndDelete(c *router.Context, m deleteRoom) (roomDeleted, error) {
	answer, err := router.Call[userAnswer](c, c.Conn(), askUser{"Delete " + m.Room + "?"})
	return roomDeleted{answer.Yes}, err
}

// Start starts a server with the messages of the examples, with and without TLS. It returns the environment that the tests of the
// clients expect: PENSTOCK_URL, PENSTOCK_TLS_URL, and PENSTOCK_CERTIFICATE, the path of the certificate of the latter.
func Start(t testing.TB) []string {
	t.Helper()
	r := router.New(&router.Options{
		Logger:              slog.New(slog.DiscardHandler),
		CompressMinBytes:    64,
		CompressWindowBytes: 1 << 20,
		Resume:              router.ResumeOptions{Within: time.Minute},
		Authenticate: func(r *http.Request) (router.Identity, error) {
			if r.Header.Get("Authorization") != "" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "the token is wrong")
			}
			return router.Identity{}, nil
		},
	})
	rooms := &rooms{router: r, texts: map[string][]string{}}
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 100},
		Presence:  true,
	})
	router.On(r, rooms.say)
	router.RPC(r, rooms.history)
	router.Stream(r, export)
	router.RPC(r, askAndDelete)
	router.RPC(r, func(_ *router.Context, m echo) (echo, error) { return m, nil })
	router.RPC(r, func(c *router.Context, _ wait) (wait, error) { <-c.Done(); return wait{}, c.Err() })
	registerRuns(r)
	mux := http.NewServeMux()
	mux.Handle("/", r)
	mux.Handle("/http", r.HTTPFallback(nil))
	plain, secure := httptest.NewServer(mux), httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		plain.Close()
		secure.Close()
	})
	certificate := filepath.Join(t.TempDir(), "certificate.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificate, text, 0o600))
	return []string{
		"PENSTOCK_URL=ws" + strings.TrimPrefix(plain.URL, "http"),
		"PENSTOCK_TLS_URL=wss" + strings.TrimPrefix(secure.URL, "https"),
		"PENSTOCK_CERTIFICATE=" + certificate,
	}
}
