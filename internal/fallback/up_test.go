package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// recordingRouter records the numbers of events.
func recordingRouter(opts *router.Options) (*router.Router, *recorder[int]) {
	r, handled := router.New(opts), &recorder[int]{}
	router.On(r, func(_ *router.Context, m Echo) error {
		handled.add(m.N)
		return nil
	})
	return r, handled
}

// TestUp_RepeatedBatchIsHandledOnce repeats a batch, also from another address, and skips one.
func TestUp_RepeatedBatchIsHandledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, handled := recordingRouter(&router.Options{})
		h := r.HTTPFallback(nil)
		address := "192.0.2.7:1"
		client := newClient(t, withAddress(h, &address))
		events := client.open("stream")
		defer events.close()
		first := client.batch(1, event(1), event(2))
		assert.Equal(t, http.StatusNoContent, client.status("up", first))
		address = "198.51.100.3:1"
		assert.Equal(t, http.StatusNoContent, client.status("up", first))
		assert.Equal(t, http.StatusConflict, client.status("up", client.batch(3, event(9))))
		assert.Equal(t, http.StatusNoContent, client.status("up", client.batch(2, "", event(3), "")))
		assert.Equal(t, http.StatusConflict, client.status("up", first))
		assert.Equal(t, http.StatusNoContent, client.status("up", client.batch(0, event(9))))
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 3}, handled.all())
		conn := onlyConn(t, r)
		assert.Equal(t, "192.0.2.7", conn.IP().String(), "the connection has the address that opened it")
	})
}

// TestUp_WithoutMessages has a batch that is empty, and one of empty lines.
func TestUp_WithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, handled := recordingRouter(&router.Options{})
		client := newClient(t, r.HTTPFallback(nil))
		defer client.open("stream").close()
		client.up()
		client.up("", "")
		client.up(event(1))
		synctest.Wait()
		assert.Equal(t, []int{1}, handled.all())
	})
}

// TestUp_WaitsWhileTheConnectionIsNotRead has a handler that blocks. Meanwhile one more request with messages waits, a
// third one does not, and acknowledgments and a close are handled.
func TestUp_WaitsWhileTheConnectionIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		handled := &recorder[int]{}
		r := router.New(&router.Options{Limits: router.Limits{InboundBytes: 1}})
		router.On(r, func(_ *router.Context, m Echo) error {
			handled.add(m.N)
			<-release
			return nil
		})
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		padding := strings.Repeat(" ", 30<<10) // more than the transport has read when it stops
		client.up(event(1)+padding, event(2)+padding)
		start := time.Now()
		type outcome struct {
			status int
			took   time.Duration
		}
		outcomes := make(chan outcome, 3)
		body := client.batch(2, event(3)+padding, event(4)+padding, event(5)+padding, event(6)+padding)
		send := func(ctx context.Context) {
			resp, err := client.try(ctx, "up", body)
			if err != nil {
				return
			}
			_ = resp.Body.Close()
			outcomes <- outcome{resp.StatusCode, time.Since(start)}
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go send(impatient)
		synctest.Wait()
		go send(t.Context())
		synctest.Wait()
		go send(t.Context())
		assert.Equal(t, outcome{http.StatusServiceUnavailable, 0}, <-outcomes, "the third one")
		assert.Equal(t, http.StatusNoContent, client.acknowledge())
		assert.Equal(t, outcome{http.StatusServiceUnavailable, 5 * time.Second}, <-outcomes, "the second one")
		go send(t.Context())
		synctest.Wait()
		close(release)
		assert.Equal(t, http.StatusNoContent, (<-outcomes).status, "it has been handled, although its client has gone")
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6}, handled.all())
	})
}

func TestUp_MalformedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, handled := recordingRouter(&router.Options{})
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		quoted := fmt.Sprintf("%q", client.secret)
		for body, want := range map[string]int{
			"":                                    http.StatusBadRequest,
			"{}":                                  http.StatusBadRequest,
			`{"secret":` + quoted + `,"seq":-1}`:  http.StatusBadRequest,
			`{"secret":` + quoted + `,"seq":"1"}`: http.StatusBadRequest,
			`{"secret":` + quoted + `,"seq":1`:    http.StatusBadRequest,
			`{"secret":` + quoted + `,"close":{"code":1}}`:                  http.StatusBadRequest,
			`{"secret":` + quoted + strings.Repeat(" ", 2000) + `,"seq":1}`: http.StatusBadRequest,
			`{"secret":` + quoted + `,"ack":1}`:                             http.StatusConflict,
			`{"secret":"x","seq":1}`:                                        http.StatusConflict,
			`{"secret":` + quoted + `,"unknown":{}}`:                        http.StatusNoContent,
		} {
			assert.Equal(t, want, client.status("up", body), body)
		}
		assert.Empty(t, handled.all())
	})
}

// A countedBody is a body of a size, and counts what is read of it.
type countedBody struct {
	prefix string
	size   int64
	read   int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n := copy(p, b.prefix)
	b.prefix = b.prefix[n:]
	for i := range p[n:] {
		p[n+i] = ' '
	}
	b.read += int64(len(p))
	return len(p), nil
}

func (*countedBody) Close() error { return nil }

// TestUp_HugeBodyIsNotRead has a body of a GiB with a secret and without one.
func TestUp_HugeBodyIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := recordingRouter(&router.Options{})
		h := r.HTTPFallback(nil)
		client := newClient(t, h)
		events := client.open("stream")
		defer events.close()
		for name, tt := range map[string]struct {
			operation, prefix string
			want              int
			most              int64
		}{
			"no line":        {"up", "", http.StatusBadRequest, 8 << 10},
			"unknown secret": {"up", `{"secret":"x","seq":1}` + "\n", http.StatusConflict, 8 << 10},
			"secret":         {"up", client.batch(1), http.StatusRequestEntityTooLarge, 3 << 20},
			"down":           {"down", "", http.StatusRequestEntityTooLarge, 8 << 10},
			"open":           {"open", "", http.StatusRequestEntityTooLarge, 64 << 10},
		} {
			body := &countedBody{prefix: tt.prefix, size: 1 << 30}
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, client.url+"?"+tt.operation, nil))
			req.Body = body // without a length
			w := &statusWriter{header: http.Header{}}
			h.ServeHTTP(w, req)
			assert.Equal(t, tt.want, w.status, name)
			assert.Less(t, body.read, tt.most, name)
		}
	})
}

// A statusWriter keeps a status.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header { return w.header }

func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }

func (w *statusWriter) WriteHeader(status int) { w.status = status }

// TestUp_SlowBodyHasADeadline has a client that sends the first line, and then nothing.
func TestUp_SlowBodyHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := recordingRouter(&router.Options{})
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		for _, operation := range []string{"open", "down", "up"} {
			body := newStalledBody(client.batch(1))
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, client.url+"?"+operation, body))
			start := time.Now()
			resp, err := client.do(req)
			if err == nil { // otherwise the transport noticed first that it cannot send the body
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, 10*time.Second, time.Since(start))
			close(body.release)
		}
	})
}

// A stalledBody blocks behind a text.
type stalledBody struct {
	text    *strings.Reader
	release chan struct{}
}

func newStalledBody(text string) *stalledBody {
	return &stalledBody{strings.NewReader(text), make(chan struct{})}
}

func (b *stalledBody) Read(p []byte) (int, error) {
	if b.text.Len() > 0 {
		return b.text.Read(p)
	}
	<-b.release
	return 0, http.ErrBodyReadAfterClose
}

// TestUp_GuessedSecrets tries secrets near the right one, and parts of it.
func TestUp_GuessedSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, handled := recordingRouter(&router.Options{})
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		right := client.secret
		guesses := []string{"x", right[:len(right)-1], right + "A", strings.ToUpper(right), strings.Repeat("A", len(right)), onlyConn(t, r).ID()}
		for i := range right {
			guess := []byte(right)
			if guess[i]++; guess[i] == 'Z'+1 || guess[i] == 'z'+1 || guess[i] == '9'+1 {
				guess[i]--
				guess[i]--
			}
			guesses = append(guesses, string(guess))
		}
		for _, guess := range slices.DeleteFunc(guesses, func(guess string) bool { return guess == right }) {
			client.secret = guess
			assert.Equal(t, http.StatusConflict, client.status("up", client.batch(1, event(1))), guess)
			resp := client.down("stream")
			assert.Equal(t, http.StatusConflict, resp.StatusCode, guess)
			require.NoError(t, resp.Body.Close())
		}
		client.secret = right
		synctest.Wait()
		assert.Empty(t, handled.all())
		client.up(event(1))
	})
}
