package aisdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A node is a router with runs and a handler.
type node struct {
	router  *router.Router
	runs    *run.Runs[aisdk.Chunk]
	handler *aisdk.Handler
}

// nodes returns nodes that share a store. Chats belong to the user of the query parameter "user";
// the user "viewer" may read those of "ann", and not stop them.
func nodes(t *testing.T, n int, opts aisdk.Options, changes ...func(*run.Options[aisdk.Chunk])) []*node {
	return nodesOf(t, n, &router.Options{Broker: memory.NewBroker()}, opts, changes...)
}

// nodesOf is nodes with options of the routers.
func nodesOf(t *testing.T, n int, ofRouters *router.Options, opts aisdk.Options, changes ...func(*run.Options[aisdk.Chunk])) []*node {
	ofRuns := &run.Options[aisdk.Chunk]{Merge: aisdk.MergeDeltas}
	for _, change := range changes {
		change(ofRuns)
	}
	all := make([]*node, n)
	if opts.Authenticate == nil {
		opts.Authenticate = func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Query().Get("user")}, nil
		}
	}
	if opts.Authorize == nil {
		opts.Authorize = authorize
	}
	if opts.Answer == nil {
		opts.Answer = follow
	}
	opts.Topic = func(_ router.Identity, chat string) string { return "answer/" + chat }
	for i := range all {
		r := router.New(ofRouters)
		rs := run.New(r, "answer/{chat}", ofRuns)
		all[i] = &node{r, rs, aisdk.New(r, rs, &opts)}
		t.Cleanup(func() { all[i].shutDown(t) })
	}
	return all
}

func (n *node) shutDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.NoError(t, n.router.Shutdown(ctx))
}

func authorize(_ context.Context, a aisdk.Access) error {
	user, _, _ := strings.Cut(a.Chat, "-")
	if a.Identity.UserID == user || a.Identity.UserID == "viewer" && a.Action != aisdk.ActionSend && a.Action != aisdk.ActionAbort {
		return nil
	}
	return errors.Errorf(errors.PermissionDenied, "not yours")
}

// A script is the body of a send, which the producer follows.
type script struct {
	Items     int    `json:"items"`
	EveryMs   int    `json:"everyMs"`
	FailAfter int    `json:"failAfter"` // -1 is never
	Text      string `json:"text"`
}

// follow produces what the script says.
func follow(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
	var body struct{ Script script }
	if err := json.Unmarshal(req.Body, &body); err != nil {
		return err
	}
	for _, c := range []aisdk.Chunk{aisdk.Start("", map[string]string{"run": out.Run().ID}), aisdk.StartStep(), aisdk.TextStart("1")} {
		if err := out.Emit(c); err != nil {
			return err
		}
	}
	for i := range body.Script.Items {
		if i == body.Script.FailAfter {
			return errors.Errorf(errors.Unavailable, "the model has failed")
		}
		if err := out.Emit(aisdk.TextDelta("1", fmt.Sprint(body.Script.Text, i, " "))); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(body.Script.EveryMs) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// text returns what a script with items produces.
func text(items int) string {
	var b strings.Builder
	for i := range items {
		fmt.Fprint(&b, "w", i, " ")
	}
	return b.String()
}

// A page is a client that sends and receives frames.
type page struct {
	t  *testing.T
	ws *websocket.Conn
}

// A frame is one of the server.
type frame struct {
	Type      string          `json:"type"`
	RequestID string          `json:"requestId"`
	Sequence  *int            `json:"sequence"`
	Chunk     json.RawMessage `json:"chunk"`
	ErrorText string          `json:"errorText"`
}

// A pipeListener accepts in-memory connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// dial sends a handshake over an in-memory connection.
func dial(t *testing.T, h http.Handler, query string, header http.Header) (*websocket.Conn, *http.Response, error) {
	listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, accepted := net.Pipe()
		listener.conns <- accepted
		return client, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, server.Close())
	})
	return websocket.Dial(t.Context(), "ws://chat.example/chat?"+query, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Subprotocols: header["Subprotocols"],
	})
}

// open connects as a user.
func (n *node) open(t *testing.T, user string) *page {
	ws, _, err := dial(t, n.handler, "user="+url.QueryEscape(user), nil)
	require.NoError(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &page{t, ws}
}

func (p *page) write(text string) {
	require.NoError(p.t, p.ws.Write(p.t.Context(), websocket.MessageText, []byte(text)))
}

// submit is the frame of a send.
func submit(id, chat, message string, s script) string {
	body, _ := json.Marshal(map[string]any{"script": s})
	return fmt.Sprintf(`{"type":"send","requestId":%q,"id":%q,"trigger":"submit-message","headers":{},"body":%s,`+
		`"messages":[{"id":"0","role":"assistant","parts":[]},{"id":%q,"role":"user","parts":[{"type":"text","text":"hello"}]}]}`,
		id, chat, body, message)
}

func resume(id, chat string) string {
	return fmt.Sprintf(`{"type":"resume","requestId":%q,"id":%q,"headers":{},"body":{}}`, id, chat)
}

func abort(id string) string { return fmt.Sprintf(`{"type":"abort","requestId":%q}`, id) }

// next returns the next frame. It fails the test if the frame has other members, or a null.
func (p *page) next() frame {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	typ, data, err := p.ws.Read(ctx)
	require.NoError(p.t, err)
	require.Equal(p.t, websocket.MessageText, typ)
	require.NotContains(p.t, string(data), "\n")
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	var f frame
	require.NoError(p.t, decoder.Decode(&f), string(data))
	require.NotEmpty(p.t, f.RequestID, string(data))
	require.Equal(p.t, f.Type == "chunk", f.Sequence != nil && f.Chunk != nil, string(data))
	return f
}

// closed returns the code with which the server closes the connection.
func (p *page) closed() websocket.StatusCode {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Minute)
	defer cancel()
	for {
		_, _, err := p.ws.Read(ctx)
		if err != nil {
			p.t.Log(err)
			return websocket.CloseStatus(err)
		}
	}
}

// An answer is what a request has received.
type answer struct {
	chunks []map[string]any
	types  []string // of the chunks
	text   string
	end    frame
}

// read reads the frames of one request, and no others, until its end.
func (p *page) read(id string) (a answer) {
	p.t.Helper()
	return p.readAll(id)[id]
}

// rest is read for a request whose first frame has been read.
func (p *page) rest(id string) answer {
	p.t.Helper()
	return p.readStarted(map[string]bool{id: true}, id)[id]
}

// readAll reads the frames of requests until their ends.
func (p *page) readAll(ids ...string) map[string]answer {
	p.t.Helper()
	return p.readStarted(map[string]bool{}, ids...)
}

func (p *page) readStarted(started map[string]bool, ids ...string) map[string]answer {
	p.t.Helper()
	answers := map[string]answer{}
	for open := len(ids); open > 0; {
		f := p.next()
		require.Contains(p.t, ids, f.RequestID)
		a := answers[f.RequestID]
		require.Empty(p.t, a.end.Type, "a frame follows the end")
		switch f.Type {
		case "start":
			require.False(p.t, started[f.RequestID])
			started[f.RequestID] = true
		case "chunk":
			require.True(p.t, started[f.RequestID])
			require.Equal(p.t, len(a.chunks), *f.Sequence)
			a.add(p.t, f.Chunk)
		default:
			a.end = f
			open--
		}
		answers[f.RequestID] = a
	}
	return answers
}

func (a *answer) add(t *testing.T, text json.RawMessage) {
	var c map[string]any
	require.NoError(t, json.Unmarshal(text, &c))
	a.chunks = append(a.chunks, c)
	a.types = append(a.types, c["type"].(string))
	if c["type"] == "text-delta" {
		a.text += c["delta"].(string)
	}
}

func chunkType(t *testing.T, f frame) string {
	var c struct{ Type string }
	require.NoError(t, json.Unmarshal(f.Chunk, &c))
	return c.Type
}

func last(types []string) string {
	if len(types) == 0 {
		return ""
	}
	return types[len(types)-1]
}
