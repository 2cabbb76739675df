package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/simnet"
)

// newTestServer returns a server with flags, which is shut down when the test ends.
func newTestServer(t *testing.T, flags ...string) *server {
	t.Helper()
	cfg, err := parseFlags(flags, func(string) string { return "" }, io.Discard)
	require.NoError(t, err)
	s := newServer(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, s.router.Shutdown(ctx))
	})
	return s
}

// A page is a client of the AI SDK, which sends and receives frames.
type page struct {
	t         *testing.T
	ws        *websocket.Conn
	sequences map[string]int // the next one of each request
}

// A frame is one of the server.
type frame struct {
	Type      string
	RequestID string
	Sequence  int
	Chunk     struct {
		Type            string
		Delta           string
		MessageID       string
		MessageMetadata struct{ Run string }
	}
	ErrorText string
}

// open connects to a server in memory, as a user.
func (s *server) open(t *testing.T, user string) *page {
	t.Helper()
	network := simnet.New(1, simnet.Links{Window: 1 << 20})
	httpServer := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	listener := network.Listen("server")
	go func() { _ = httpServer.Serve(listener) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.Dial(ctx, user, "server")
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, httpServer.Close())
	})
	return dial(t, "http://chat.example", user, &http.Client{Transport: transport})
}

// dial connects to the server at a URL, as a user.
func dial(t *testing.T, url, user string, client *http.Client) *page {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), url+"/chat?user="+user, &websocket.DialOptions{HTTPClient: client})
	require.NoError(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &page{t, ws, map[string]int{}}
}

func (p *page) write(text string) {
	p.t.Helper()
	require.NoError(p.t, p.ws.Write(p.t.Context(), websocket.MessageText, []byte(text)))
}

// send sends a message with a script, which is JSON.
func (p *page) send(requestID, chat, message, script string) {
	p.t.Helper()
	p.write(fmt.Sprintf(`{"type":"send","requestId":%q,"id":%q,"trigger":"submit-message","headers":{},"body":{"script":%s},`+
		`"messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":"hello"}]}]}`, requestID, chat, script, message))
}

func (p *page) resume(requestID, chat string) {
	p.t.Helper()
	p.write(fmt.Sprintf(`{"type":"resume","requestId":%q,"id":%q,"headers":{},"body":{}}`, requestID, chat))
}

func (p *page) abort(requestID string) {
	p.t.Helper()
	p.write(fmt.Sprintf(`{"type":"abort","requestId":%q}`, requestID))
}

// next returns the next frame. A gap between the chunks of a request fails the test.
func (p *page) next() (f frame) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	_, text, err := p.ws.Read(ctx)
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal(text, &f), "%s", text)
	switch f.Type {
	case "start":
		p.sequences[f.RequestID] = 0
	case "chunk":
		require.Equal(p.t, p.sequences[f.RequestID], f.Sequence)
		p.sequences[f.RequestID]++
	}
	return f
}

// firstChunk returns the next frame with a chunk, which must be the start of an answer.
func (p *page) firstChunk() frame {
	p.t.Helper()
	require.Equal(p.t, "start", p.next().Type)
	f := p.next()
	require.Equal(p.t, "start", f.Chunk.Type, "%+v", f)
	return f
}

// An answer is what a request has received.
type answer struct {
	run, message string
	types        string // of the chunks; neighbors of one type count once
	text         string
	end          frame
}

// read reads the frames of a request until its end. Frames of others fail the test.
func (p *page) read(requestID string) (a answer) {
	p.t.Helper()
	var types []string
	for {
		f := p.next()
		require.Equal(p.t, requestID, f.RequestID)
		switch f.Type {
		case "start":
		case "chunk":
			a.text += f.Chunk.Delta
			if len(types) == 0 || types[len(types)-1] != f.Chunk.Type {
				types = append(types, f.Chunk.Type)
			}
			if f.Chunk.Type == "start" {
				a.run, a.message = f.Chunk.MessageMetadata.Run, f.Chunk.MessageID
			}
		default:
			a.end, a.types = f, strings.Join(types, " ")
			return a
		}
	}
}

func items(text string, n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprint(&all, text, i, " ")
	}
	return all.String()
}
