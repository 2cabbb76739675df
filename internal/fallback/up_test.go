package fallback_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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

// A countedBody is a body without an end, and counts what is read of it.
type countedBody struct {
	prefix string
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

// TestUp_HugeBodyIsNotRead has a body without an end, with a secret and without one.
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
			body := &countedBody{prefix: tt.prefix}
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, client.url+"?"+tt.operation, nil))
			req.Body = body // without a length
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			assert.Equal(t, tt.want, w.Code, name)
			assert.Less(t, body.read, tt.most, name)
		}
	})
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
			guesses = append(guesses, right[:i]+otherThan(right[i])+right[i+1:])
		}
		for _, guess := range guesses {
			client.secret = guess
			assert.Equal(t, http.StatusConflict, client.status("up", client.batch(1, event(1))), guess)
			assert.Equal(t, http.StatusConflict, client.down("stream").StatusCode, guess)
		}
		client.secret = right
		synctest.Wait()
		assert.Empty(t, handled.all())
		client.up(event(1))
	})
}
