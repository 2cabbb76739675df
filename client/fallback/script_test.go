//go:build !js

package fallback_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// A script is a server of the fallback whose answers are those of a test, written from the
// protocol, section 15, and a connection to it.
type script struct {
	*endpoint

	t       *testing.T
	proceed chan struct{} // an answer that waits
	began   time.Time     // what took its time

	mu       sync.Mutex
	answers  map[string][]answer // by exchange, the last one again and again; nil: a stream, or 204
	requests []request           // open, down and up
	streams  []stream
	expected map[string]int // how many requests of an exchange were looked at
	last     request        // that was looked at
}

// A request is one that the client has sent.
type request struct {
	exchange, body string
	header         http.Header
	at             time.Time
}

func newScript(t *testing.T) *script {
	return &script{t: t, proceed: make(chan struct{}), answers: map[string][]answer{}, expected: map[string]int{}}
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	exchange := exchangeOf(req)
	switch exchange {
	case "websocket": // silent
		return answerOf(s.t, "hangs")(req)
	case "probe":
		return response(http.StatusForbidden, false), nil
	case "check":
		return response(http.StatusNoContent, true), nil
	}
	body, err := io.ReadAll(req.Body)
	require.NoError(s.t, err)
	s.mu.Lock()
	s.requests = append(s.requests, request{exchange, string(body), req.Header, time.Now()})
	var next answer
	if list := s.answers[exchange]; len(list) > 0 {
		next = list[0]
		s.answers[exchange] = list[min(1, len(list)-1):]
	}
	s.mu.Unlock()
	switch {
	case next != nil:
		return next(req)
	case exchange == "up":
		return response(http.StatusNoContent, true), nil
	}
	resp := s.stream(req.Context())
	if exchange == "open" {
		s.send("event: open\ndata: {\"secret\":\"s3cret\",\"protocol\":\"\"}\n\n")
	} else {
		s.send(":\n\n")
	}
	return resp, nil
}

// answer sets the answers to the requests of an exchange.
func (s *script) answer(exchange, texts string) {
	var answers []answer
	for text := range strings.SplitSeq(texts, " ; ") {
		text, waits := strings.CutPrefix(text, "waits ")
		next := answerOf(s.t, text)
		switch {
		case text == "stream":
			next = nil
		case waits:
			then := next
			next = func(req *http.Request) (*http.Response, error) { <-s.proceed; return then(req) }
		}
		answers = append(answers, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[exchange] = answers
}

// A stream is a response that goes on.
type stream struct {
	*io.PipeWriter

	events chan string // that are written, in order
}

// stream returns a response to which send writes from now on.
func (s *script) stream(ctx context.Context) *http.Response {
	r, w := io.Pipe()
	events := make(chan string, 10)
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() {
		for {
			select {
			case text := <-events:
				_, _ = io.WriteString(w, text)
			case <-ctx.Done():
				return
			}
		}
	}()
	resp := response(http.StatusOK, true)
	resp.Body = r
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, stream{w, events})
	return resp
}

// lastStream returns the stream to which send writes.
func (s *script) lastStream() stream {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[len(s.streams)-1]
}

// send writes events without waiting until they are read.
func (s *script) send(events string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[len(s.streams)-1].events <- events
}

// sent returns the requests of an exchange that were not looked at yet.
func (s *script) sent(exchange string) (all []request) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.exchange == exchange {
			all = append(all, r)
		}
	}
	return all[s.expected[exchange]:]
}

// An endpoint is a WebSocket client without a library.
type endpoint struct {
	*wsframe.Reader
	io.ReadWriteCloser

	resp *http.Response
}

// connect opens a connection over HTTP.
func (s *script) connect(header http.Header) {
	s.t.Helper()
	resp, err := s.handshake(header)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusSwitchingProtocols, resp.StatusCode)
	body := resp.Body.(io.ReadWriteCloser)
	s.endpoint = &endpoint{wsframe.NewReader(bufio.NewReader(body), 100<<20, nil), body, resp}
	s.t.Cleanup(func() { _ = body.Close() })
}

func (s *script) handshake(header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://example.com/ws?a=b&c=%20", nil)
	require.NoError(s.t, err)
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	return fallback.New("http://example.com/ws/http", &fallback.Options{Base: s}).RoundTrip(req)
}

func (s *script) write(op wsframe.Opcode, text string) {
	_, err := s.Write(wsframe.AppendFrame(nil, wsframe.Client, op, []byte(text)))
	require.NoError(s.t, err)
	synctest.Wait()
}

// step is one of the steps that testdata/wire.txt explains.
func (s *script) step(step, arguments string) {
	s.t.Helper()
	first, rest, _ := strings.Cut(arguments, " ")
	number, _ := strconv.Atoi(first)
	switch step {
	case "open", "down", "up":
		s.answer(step, arguments)
	case "handshake":
		resp, err := s.handshake(nil)
		if first == "error" {
			require.ErrorContains(s.t, err, rest)
			return
		}
		require.NoError(s.t, err)
		assert.Equal(s.t, number, resp.StatusCode)
		require.NoError(s.t, resp.Body.Close())
	case "connect":
		s.began = time.Now()
		s.connect(nil)
	case "proceed":
		s.proceed <- struct{}{}
	case "leave":
		require.NoError(s.t, s.Close())
	case "wait":
		time.Sleep(duration(s.t, arguments))
		synctest.Wait()
	case "took":
		lower, upper := duration(s.t, first), duration(s.t, rest)
		assert.InDelta(s.t, (lower+upper)/2, time.Since(s.began), float64(upper-lower)/2)
	default:
		s.frameStep(step, first, rest, number)
	}
}

// frameStep has the steps of single events, frames and requests.
func (s *script) frameStep(step, first, rest string, number int) {
	s.t.Helper()
	arguments := unquoted(strings.TrimSpace(first + " " + rest))
	switch step {
	case "event":
		name := ""
		for _, n := range []string{"close", "ping"} {
			if after, ok := strings.CutPrefix(rest, n); ok {
				name, rest = "event: "+n+"\n", strings.TrimSpace(after)
			}
		}
		s.send(name + "id: " + first + "\ndata: " + unquoted(rest) + "\n\n")
	case "raw":
		s.send(arguments)
	case "cut":
		s.began = time.Now()
		_ = s.lastStream().CloseWithError(errors.New("cut"))
	case "text":
		s.began = time.Now()
		s.write(wsframe.Text, arguments)
	case "binary":
		s.write(wsframe.Binary, arguments)
	case "close":
		_, err := s.Write(wsframe.AppendClose(nil, wsframe.Client, number, rest))
		require.NoError(s.t, err)
	case "gets":
		message, op, err := s.Append(nil)
		require.NoError(s.t, err)
		assert.Equal(s.t, []any{wsframe.Text, arguments}, []any{op, string(message)})
		synctest.Wait()
	case "ends":
		_, _, err := s.Append(nil)
		if number == 0 {
			assert.ErrorContains(s.t, err, rest)
			return
		}
		assert.Equal(s.t, &wsframe.CloseError{Code: number, Reason: rest}, err)
	case "sent":
		found := s.sent(first)
		require.NotEmpty(s.t, found)
		assert.Equal(s.t, unquoted(rest), found[0].body)
		s.expected[first]++
		s.began, s.last = s.last.at, found[0]
	case "after":
		assert.GreaterOrEqual(s.t, s.last.at.Sub(s.began), duration(s.t, first))
	case "none":
		assert.Empty(s.t, s.sent(first))
	case "count":
		from, to, _ := strings.Cut(rest, " ")
		lower, _ := strconv.Atoi(from)
		upper, _ := strconv.Atoi(to)
		assert.InDelta(s.t, (lower+upper)/2, len(s.sent(first)), float64(upper-lower)/2)
	default:
		s.t.Fatal("no step:", step)
	}
}
