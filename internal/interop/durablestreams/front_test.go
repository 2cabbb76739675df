package durablestreams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/durablestreams"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A chunk is a message of the streams of the published tests.
type chunk struct {
	Data []byte `json:"data"`
}

func (chunk) MessageType() string { return "chunk" }

// A store keeps the streams behind a front.
type store interface {
	create(topic string) error
	add(ctx context.Context, topic string, c chunk) error
	end(topic string)
	handler(contentType string) http.Handler
}

// A front lets the published tests write, which the handler does not: it creates a stream for PUT, adds messages for
// POST, and forgets a stream for DELETE. It passes everything else on.
type front struct {
	store store

	mu       sync.Mutex
	streams  map[string]*stream // by path
	handlers map[string]http.Handler
	created  int
}

type stream struct {
	topic       string
	contentType string
	handler     http.Handler

	mu     sync.Mutex // held while a message is added, so that messages are in the order of their requests
	closed bool
}

// startFront returns the URL of a front, which is closed when the test ends.
func startFront(t *testing.T, s store) string {
	f := &front{store: s, streams: map[string]*stream{}, handlers: map[string]http.Handler{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

// options are those of the streams of a content type. Every request may read.
func options[Message any](contentType string, data func(Message) ([]byte, error)) *durablestreams.Options[Message] {
	return &durablestreams.Options[Message]{
		Topic:       func(req *http.Request) string { return req.Header.Get("Test-Topic") },
		Authorize:   func(*http.Request, string) error { return nil },
		ContentType: contentType, Encode: data, Origins: []string{"*"}, PollTimeout: 500 * time.Millisecond,
	}
}

func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	f.mu.Lock()
	s := f.streams[req.URL.Path]
	f.mu.Unlock()
	switch req.Method {
	case http.MethodPut:
		f.put(w, req, s)
	case http.MethodPost:
		f.post(w, req, s)
	case http.MethodDelete:
		f.remove(w, req, s)
	default:
		f.read(w, req, s)
	}
}

func (f *front) read(w http.ResponseWriter, req *http.Request, s *stream) {
	handler, topic := f.handlerFor("text/plain"), "unknown/1"
	if s != nil {
		handler, topic = s.handler, s.topic
	}
	req.Header.Set("Test-Topic", topic)
	handler.ServeHTTP(w, req)
}

func (f *front) handlerFor(contentType string) http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.handlers[contentType]
	if h == nil {
		h = f.store.handler(contentType)
		f.handlers[contentType] = h
	}
	return h
}

func (f *front) put(w http.ResponseWriter, req *http.Request, s *stream) {
	contentType := req.Header.Get("Content-Type")
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	closing := req.Header.Get("Stream-Closed") == "true"
	if s != nil {
		if !strings.EqualFold(s.contentType, contentType) || s.closed != closing {
			http.Error(w, "the stream exists with another configuration", http.StatusConflict)
			return
		}
		f.describe(w, req, s, http.StatusOK)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.created++
	s = &stream{topic: fmt.Sprintf("stream/%d", f.created), contentType: contentType}
	f.mu.Unlock()
	s.handler = f.handlerFor(contentType)
	if err := f.store.create(s.topic); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := f.add(req.Context(), s, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if closing {
		s.closed = true
		f.store.end(s.topic)
	}
	f.mu.Lock()
	f.streams[req.URL.Path] = s
	f.mu.Unlock()
	w.Header().Set("Location", "http://"+req.Host+req.URL.Path)
	f.describe(w, req, s, http.StatusCreated)
}

func (f *front) post(w http.ResponseWriter, req *http.Request, s *stream) {
	if s == nil {
		http.Error(w, "there is no such stream", http.StatusNotFound)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	closing := req.Header.Get("Stream-Closed") == "true"
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	case len(body) == 0 && !closing, len(body) > 0 && req.Header.Get("Content-Type") == "":
		http.Error(w, "no body or no content type", http.StatusBadRequest)
		return
	case s.closed && len(body) > 0:
		w.Header().Set("Stream-Closed", "true")
		f.describe(w, req, s, http.StatusConflict)
		return
	case len(body) > 0 && !strings.EqualFold(mediaType(req.Header.Get("Content-Type")), mediaType(s.contentType)):
		http.Error(w, "the stream has another content type", http.StatusConflict)
		return
	}
	if len(body) > 0 {
		if strings.TrimSpace(string(body)) == "[]" && mediaType(s.contentType) == "application/json" {
			err = errors.New("an empty array has no messages")
		} else {
			err = f.add(req.Context(), s, body)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if closing && !s.closed {
		s.closed = true
		f.store.end(s.topic)
	}
	f.describe(w, req, s, http.StatusNoContent)
}

func (f *front) remove(w http.ResponseWriter, req *http.Request, s *stream) {
	if s == nil {
		http.Error(w, "there is no such stream", http.StatusNotFound)
		return
	}
	f.mu.Lock()
	delete(f.streams, req.URL.Path)
	f.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// add adds a body: each element of a JSON array is a message, and else the body is one.
func (f *front) add(ctx context.Context, s *stream, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	messages := []json.RawMessage{body}
	if mediaType(s.contentType) == "application/json" {
		if !json.Valid(body) {
			return errors.New("the body is not JSON")
		}
		if strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
			if err := json.Unmarshal(body, &messages); err != nil {
				return err
			}
		}
	}
	for _, m := range messages {
		if err := f.store.add(ctx, s.topic, chunk{m}); err != nil {
			return err
		}
	}
	return nil
}

// describe answers with what HEAD answers.
func (f *front) describe(w http.ResponseWriter, req *http.Request, s *stream, status int) {
	head := httptest.NewRequest(http.MethodHead, req.URL.Path, nil)
	answer := httptest.NewRecorder()
	f.read(answer, head, s)
	for _, name := range []string{"Stream-Next-Offset", "Stream-Closed", "Content-Type"} {
		if value := answer.Header().Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(status)
}

func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// A runStore has a run for each stream. A closed stream is a run whose producer has returned.
type runStore struct {
	router *router.Router
	runs   *run.Runs[chunk]

	mu    sync.Mutex
	after map[string]*producer // by topic
}

type producer struct {
	out   *run.Output[chunk]
	end   chan struct{}
	items uint64
}

func newRunStore(t *testing.T) *runStore {
	r := router.New(nil)
	s := &runStore{router: r, after: map[string]*producer{}}
	s.runs = run.New(r, "stream/{n}", &run.Options[chunk]{Limits: run.Limits{Bytes: 64 << 20}, ShutdownGrace: time.Millisecond})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, r.Shutdown(ctx))
	})
	return s
}

func (s *runStore) create(topic string) error {
	outputs, end := make(chan *run.Output[chunk], 1), make(chan struct{})
	_, err := s.runs.Start(context.Background(), topic, nil, func(ctx context.Context, out *run.Output[chunk]) error {
		outputs <- out
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after[topic] = &producer{out: <-outputs, end: end}
	return nil
}

func (s *runStore) producer(topic string) *producer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after[topic]
}

// add returns when readers receive the message. Flush returns when it is stored, which is a little earlier.
func (s *runStore) add(ctx context.Context, topic string, c chunk) error {
	p := s.producer(topic)
	if err := errors.Join(p.out.Emit(c), p.out.Flush()); err != nil {
		return err
	}
	reader, err := s.runs.Attach(ctx, topic, run.From{Item: p.items})
	if err != nil {
		return err
	}
	defer reader.Close()
	for _, err := range reader.Parts(ctx) {
		p.items++
		return err
	}
	return errors.New("the run has ended")
}

// end returns when the run has ended.
func (s *runStore) end(topic string) {
	close(s.producer(topic).end)
	reader, err := s.runs.Attach(context.Background(), topic, run.From{})
	if err != nil {
		return
	}
	defer reader.Close()
	for _, err := range reader.Parts(context.Background()) {
		if err != nil {
			return
		}
	}
}

func (s *runStore) handler(contentType string) http.Handler {
	return durablestreams.Runs(s.router, s.runs, options(contentType, func(c chunk) ([]byte, error) { return c.Data, nil }))
}

// A topicStore has a topic for each stream.
type topicStore struct{ router *router.Router }

func newTopicStore() *topicStore {
	r := router.New(nil)
	router.Topic(r, "stream/{n}", &router.TopicOptions{History: router.History{Messages: 10_000}, Messages: []router.Message{chunk{}}})
	return &topicStore{r}
}

func (s *topicStore) create(string) error { return nil }
func (s *topicStore) end(string)          {}

func (s *topicStore) add(_ context.Context, topic string, c chunk) error {
	return s.router.Publish(topic, c)
}

func (s *topicStore) handler(contentType string) http.Handler {
	return durablestreams.Topics(s.router, options(contentType, func(m router.StoredMessage) ([]byte, error) {
		var c chunk
		err := m.Decode(&c)
		return c.Data, err
	}))
}
