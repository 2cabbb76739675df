package durablestreams_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/durablestreams"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

type token struct {
	Text string `json:"text"`
}

func (token) MessageType() string { return "token" }

// UnmarshalJSON fails for what only another version of the application knows.
func (m *token) UnmarshalJSON(b []byte) error {
	var v struct{ Text string }
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if v.Text == "unknown" {
		return errors.Errorf(errors.InvalidArgument, "the text is of another version")
	}
	m.Text = v.Text
	return nil
}

// A server serves runs at /runs/ and topics at /topics/. Users may read what begins with their name.
type server struct {
	t      *testing.T
	router *router.Router
	runs   *run.Runs[token]
	url    string
}

func optionsFor[Message any](prefix string) durablestreams.Options[Message] {
	return durablestreams.Options[Message]{
		Topic: func(req *http.Request) string { return prefix + req.PathValue("name") },
		Authorize: func(req *http.Request, topic string) error {
			if !strings.HasPrefix(topic, prefix+"ann-") {
				return errors.Errorf(errors.PermissionDenied, "not yours")
			}
			return nil
		},
		PollTimeout: 100 * time.Millisecond,
	}
}

func start(t *testing.T, change func(*durablestreams.Options[token], *durablestreams.Options[router.StoredMessage])) *server {
	r := router.New(nil)
	s := &server{t: t, router: r, runs: run.New(r, "answer/{name}", &run.Options[token]{ShutdownGrace: time.Millisecond})}
	router.Topic(r, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 3}, Messages: []router.Message{token{}}})
	ofRuns, ofTopics := optionsFor[token]("answer/"), optionsFor[router.StoredMessage]("feed/")
	if change != nil {
		change(&ofRuns, &ofTopics)
	}
	mux := http.NewServeMux()
	mux.Handle("/runs/{name}", durablestreams.Runs(r, s.runs, &ofRuns))
	mux.Handle("/topics/{name}", durablestreams.Topics(r, &ofTopics))
	mux.Handle("/none/{name}", durablestreams.Topics(r, &durablestreams.Options[router.StoredMessage]{
		Topic:     func(req *http.Request) string { return "other/" + req.PathValue("name") },
		Authorize: func(*http.Request, string) error { return nil },
	}))
	httpServer := httptest.NewServer(mux)
	s.url = httpServer.URL
	t.Cleanup(func() {
		s.shutdown()
		httpServer.Close()
	})
	return s
}

func (s *server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.NoError(s.t, s.router.Shutdown(ctx))
}

// answer is a response with its body.
type answer struct {
	*http.Response
	body string
}

// send sends a request with headers, names and values in turn.
func (s *server) send(method, path string, header []string) *http.Response {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	require.NoError(s.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	return resp
}

func (s *server) do(method, path string, header ...string) answer {
	resp := s.send(method, path, header)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp, string(body)}
}

func (s *server) get(path string) answer { return s.do(http.MethodGet, path) }

func (a answer) next() string { return a.Header.Get("Stream-Next-Offset") }

// completed starts a run of the topic with some items, and returns its ID when it has ended.
func (s *server) completed(name string, words ...string) string {
	info, err := s.runs.Start(s.t.Context(), "answer/"+name, nil, func(_ context.Context, out *run.Output[token]) error {
		for _, word := range words {
			if err := out.Emit(token{word}); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(s.t, err)
	reader, err := s.runs.Attach(s.t.Context(), "answer/"+name, run.From{Run: info.ID})
	require.NoError(s.t, err)
	defer reader.Close()
	for _, err := range reader.Parts(s.t.Context()) {
		require.NoError(s.t, err)
	}
	return info.ID
}

// open starts a run that goes on until its output is closed.
func (s *server) open(name string) (words chan<- string) {
	c := make(chan string)
	_, err := s.runs.Start(s.t.Context(), "answer/"+name, nil, func(ctx context.Context, out *run.Output[token]) error {
		for {
			select {
			case word, ok := <-c:
				if !ok {
					return nil
				}
				if err := out.Emit(token{word}); err != nil {
					return err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	require.NoError(s.t, err)
	return c
}

// publish publishes to the topic feed/ann-1.
func (s *server) publish(words ...string) {
	for _, word := range words {
		require.NoError(s.t, s.router.Publish("feed/ann-1", token{word}))
	}
}

func TestHandler_PanicsForMistakesOfProgrammers(t *testing.T) {
	topic := func(*http.Request) string { return "" }
	authorize := func(*http.Request, string) error { return nil }
	for name, o := range map[string]durablestreams.Options[router.StoredMessage]{
		"no topic":         {Authorize: authorize},
		"no authorization": {Topic: topic},
		"negative":         {Topic: topic, Authorize: authorize, MaxBytes: -1},
		"negative timeout": {Topic: topic, Authorize: authorize, PollTimeout: -1},
	} {
		assert.Panics(t, func() { durablestreams.Topics(router.New(nil), &o) }, name)
	}
	valid := durablestreams.Options[router.StoredMessage]{Topic: topic, Authorize: authorize}
	assert.PanicsWithValue(t, "durablestreams: the router is nil; create one with router.New", func() { durablestreams.Topics(nil, &valid) })
}

// TestHandler_UnknownAndForbiddenLookTheSame compares whole responses.
func TestHandler_UnknownAndForbiddenLookTheSame(t *testing.T) {
	s := start(t, nil)
	s.completed("bob-1", "secret")
	want := s.get("/runs/ann-unknown")
	assert.Equal(t, http.StatusNotFound, want.StatusCode)
	for _, path := range []string{
		"/runs/bob-1", "/runs/bob-unknown", "/runs/bob-1?offset=bad", "/runs/bob-1?offset=now&live=sse", "/runs/ann-1?run=unknown",
		"/topics/bob-1", "/topics/bob-1?live=long-poll", "/none/ann-1",
	} {
		got := s.get(path)
		got.Header.Del("Date")
		want.Header.Del("Date")
		assert.Equal(t, want.StatusCode, got.StatusCode, path)
		assert.Equal(t, want.Header, got.Header, path)
		assert.Equal(t, want.body, got.body, path)
	}
}

func TestHandler_RejectsMalformedRequests(t *testing.T) {
	s := start(t, nil)
	id := s.completed("ann-1", "a")
	s.publish("a")
	at := s.get("/topics/ann-1").next()
	for _, query := range []string{
		"offset=", "offset=1", "offset=0_" + id, "offset=0000000000000000_", "offset=-1&offset=-1", "offset=0000000000000000_../x",
		"offset=9999999999999999_" + id, "live=sse", "live=long-poll", "live=", "live=other&offset=-1", "run=a&run=b",
		"offset=0000000000000002_" + id, // beyond the end
		"offset=0000000000000000_" + id + "&run=other",
	} {
		assert.Equal(t, http.StatusBadRequest, s.get("/runs/ann-1?"+query).StatusCode, query)
	}
	beyond := strings.Replace(at, "0000000000000001_", "0000000000000002_", 1)
	require.NotEqual(t, at, beyond)
	assert.Equal(t, http.StatusBadRequest, s.get("/topics/ann-1?offset="+beyond).StatusCode)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		got := s.do(method, "/runs/ann-1")
		assert.Equal(t, http.StatusMethodNotAllowed, got.StatusCode)
		assert.Equal(t, "GET, HEAD, OPTIONS", got.Header.Get("Allow"))
	}
}

// TestHandler_OffsetsThatAreGone has a run that the store does not have, an epoch that has ended, and messages that are not
// retained any more.
func TestHandler_OffsetsThatAreGone(t *testing.T) {
	s := start(t, nil)
	s.completed("ann-1", "a")
	s.publish("a")
	first := s.get("/topics/ann-1").next()
	s.publish("b", "c", "d", "e")
	for _, live := range []string{"", "&live=long-poll", "&live=sse"} {
		assert.Equal(t, http.StatusGone, s.get("/runs/ann-1?offset=0000000000000000_OTHERRUN"+live).StatusCode, live)
		assert.Equal(t, http.StatusGone, s.get("/topics/ann-1?offset=0000000000000001_OTHEREPOCH"+live).StatusCode, live)
		assert.Equal(t, http.StatusGone, s.get("/topics/ann-1?offset="+first+live).StatusCode, live)
	}
}

func TestHandler_CatchesUp(t *testing.T) {
	s := start(t, nil)
	s.completed("ann-1", "a", "b")
	for _, query := range []string{"", "?offset=-1", "?offset=-1&live=long-poll"} {
		got := s.get("/runs/ann-1" + query)
		assert.Equal(t, http.StatusOK, got.StatusCode)
		assert.Equal(t, `[{"text":"a"},{"text":"b"}]`, got.body, query)
		assert.Equal(t, "true", got.Header.Get("Stream-Up-To-Date"))
		assert.Equal(t, "true", got.Header.Get("Stream-Closed"))
		assert.Equal(t, "private, no-cache", got.Header.Get("Cache-Control"))
		again := s.do(http.MethodGet, "/runs/ann-1"+query, "If-None-Match", got.Header.Get("ETag"))
		assert.Equal(t, http.StatusNotModified, again.StatusCode)
		assert.Empty(t, again.body)
		assert.Equal(t, `[]`, s.get("/runs/ann-1?offset="+got.next()).body)
	}
	s.publish("a")
	got := s.get("/topics/ann-1")
	assert.Equal(t, `[{"type":"token","payload":{"text":"a"}}]`, got.body)
	assert.Empty(t, got.Header.Get("Stream-Closed"))
	head := s.do(http.MethodHead, "/topics/ann-1?live=sse")
	assert.Equal(t, got.next(), head.next())
	assert.Equal(t, "no-store", head.Header.Get("Cache-Control"))
}

// TestHandler_BoundsResponses reads messages that are longer together, or alone, than a response.
func TestHandler_BoundsResponses(t *testing.T) {
	s := start(t, func(r *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		r.MaxBytes, f.MaxBytes = 100, 100
	})
	long := strings.Repeat("x", 200)
	s.completed("ann-1", long, "a", strings.Repeat("b", 60), "c", strings.Repeat("d", 60))
	s.publish(long, strings.Repeat("b", 60), strings.Repeat("d", 60))
	for path, pages := range map[string]int{"/runs/ann-1": 3, "/topics/ann-1": 3} {
		seen, offset := "", "-1"
		for n := range pages {
			got := s.get(path + "?offset=" + offset)
			seen += got.body
			assert.Less(t, offset, got.next())
			assert.Equal(t, n == pages-1, got.Header.Get("Stream-Up-To-Date") == "true", "page %d of %s", n, path)
			offset = got.next()
		}
		assert.Contains(t, seen, long)
		assert.Contains(t, seen, "dddd")
	}
}

func TestHandler_LongPoll(t *testing.T) {
	s := start(t, nil)
	words := s.open("ann-1")
	s.publish("a")
	for _, path := range []string{"/runs/ann-1", "/topics/ann-1"} {
		got := s.get(path + "?offset=now&live=long-poll")
		assert.Equal(t, http.StatusNoContent, got.StatusCode)
		assert.Equal(t, "true", got.Header.Get("Stream-Up-To-Date"))
		cursor := got.Header.Get("Stream-Cursor")
		later := s.get(path + "?offset=" + got.next() + "&live=long-poll&cursor=" + cursor)
		assert.Greater(t, later.Header.Get("Stream-Cursor"), cursor)
		assert.Equal(t, got.next(), later.next())
	}
	polls := make(chan answer)
	for _, path := range []string{"/runs/ann-1", "/topics/ann-1"} {
		next := s.do(http.MethodHead, path).next()
		go func() {
			for {
				if got := s.get(path + "?live=long-poll&offset=" + next); got.StatusCode != http.StatusNoContent {
					polls <- got
					return
				}
			}
		}()
	}
	words <- "b"
	s.publish("b")
	for range 2 {
		assert.Contains(t, (<-polls).body, `"b"`)
	}
	end := s.do(http.MethodHead, "/runs/ann-1").next()
	close(words)
	for {
		got := s.get("/runs/ann-1?live=long-poll&offset=" + end)
		assert.Equal(t, http.StatusNoContent, got.StatusCode)
		if got.Header.Get("Stream-Closed") == "true" {
			break
		}
	}
}

// events reads events of SSE.
type events struct {
	t       *testing.T
	scanner *bufio.Scanner
	resp    *http.Response
}

func (s *server) events(path string, header ...string) *events {
	resp := s.send(http.MethodGet, path, header)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	return &events{s.t, bufio.NewScanner(resp.Body), resp}
}

// next returns the name and the data of an event, or false at the end.
func (e *events) next() (name, data string, ok bool) {
	for e.scanner.Scan() {
		switch line := e.scanner.Text(); {
		case line == "":
			return name, data, true
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		default:
			data += strings.TrimPrefix(line, "data:")
		}
	}
	return "", "", false
}

func TestHandler_SSE(t *testing.T) {
	s := start(t, nil)
	words := s.open("ann-1")
	words <- "a"
	e := s.events("/runs/ann-1?offset=-1&live=sse")
	assert.Equal(t, "text/event-stream", e.resp.Header.Get("Content-Type"))
	all, closed := "", false
	closeOnce := func() { close(words) }
	for name, data, ok := e.next(); ok; name, data, ok = e.next() {
		if name == "data" {
			all += data
			closeOnce()
			closeOnce = func() {}
		}
		closed = strings.Contains(data, `"streamClosed":true`)
		if name == "control" {
			assert.NotEqual(t, closed, strings.Contains(data, "streamCursor"))
		}
	}
	assert.Equal(t, `[{"text":"a"}]`, all)
	assert.True(t, closed)
}

// TestHandler_SSEKeepsMessagesInTheirEvents has text that looks like an event.
func TestHandler_SSEKeepsMessagesInTheirEvents(t *testing.T) {
	s := start(t, func(r *durablestreams.Options[token], _ *durablestreams.Options[router.StoredMessage]) {
		r.ContentType = "text/plain; charset=utf-8"
		r.Encode = func(item token) ([]byte, error) { return []byte(item.Text), nil }
	})
	s.completed("ann-1", " a\r\n\r\nevent: control\rdata: {}\n\n")
	e := s.events("/runs/ann-1?offset=-1&live=sse")
	name, data, _ := e.next()
	assert.Equal(t, "data", name)
	assert.Equal(t, "  aevent: controldata: {}", data, "readers remove one space")
	name, _, _ = e.next()
	assert.Equal(t, "control", name)
	_, _, ok := e.next()
	assert.False(t, ok)
	assert.Equal(t, " a\r\n\r\nevent: control\rdata: {}\n\n", s.get("/runs/ann-1").body)
}

// TestHandler_EndsWithFewerItemsThanTheRunHad, of which this version of the application cannot read one.
func TestHandler_EndsWithFewerItemsThanTheRunHad(t *testing.T) {
	s := start(t, nil)
	s.completed("ann-1", "a", "unknown")
	e := s.events("/runs/ann-1?offset=-1&live=sse")
	var controls []string
	for name, data, ok := e.next(); ok && len(controls) < 10; name, data, ok = e.next() {
		if name == "control" {
			controls = append(controls, data)
		}
	}
	require.LessOrEqual(t, len(controls), 2)
	assert.Contains(t, controls[len(controls)-1], `"streamClosed":true`)
	next := s.get("/runs/ann-1?offset=-1").next()
	assert.Equal(t, "true", s.get("/runs/ann-1?live=long-poll&offset="+next).Header.Get("Stream-Closed"))
}

// TestHandler_ShutdownEndsLiveReads has polls that would wait for a minute.
func TestHandler_ShutdownEndsLiveReads(t *testing.T) {
	s := start(t, func(r *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		r.PollTimeout, f.PollTimeout = time.Minute, time.Minute
	})
	s.open("ann-1")
	s.publish("a")
	var live []*events
	for _, path := range []string{"/runs/ann-1", "/topics/ann-1"} {
		e := s.events(path + "?offset=now&live=sse")
		name, _, _ := e.next()
		assert.Equal(t, "control", name)
		live = append(live, e)
	}
	s.shutdown()
	for _, e := range live {
		ok := true
		for ok { // the end of the run may arrive before that of the response
			_, _, ok = e.next()
		}
		assert.NoError(t, e.scanner.Err(), "the response ends, and is not cut")
	}
	assert.Equal(t, http.StatusServiceUnavailable, s.get("/runs/ann-1").StatusCode)
}
