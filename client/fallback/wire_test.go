//go:build !js

package fallback_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsframe"
)

func TestWire(t *testing.T) {
	runStories(t, "wire", func(t *testing.T) func(step, arguments string) { return newScript(t).step })
}

func TestWire_OpenHasWhatTheHandshakeHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t)
		s.answers["open"] = []answer{func(req *http.Request) (*http.Response, error) {
			resp := s.stream(req.Context())
			s.send("event: open\ndata: {\"secret\":\"s3cret\",\"protocol\":\"chat.v1\"}\n\n")
			return resp, nil
		}}
		s.connect(http.Header{
			"Sec-Websocket-Protocol": {"bearer.x, chat.v1"}, "Authorization": {"Bearer y"}, "Origin": {"https://example.org"}, "Cookie": {"a=b"},
		})
		assert.Equal(t, "chat.v1", s.resp.Header.Get("Sec-WebSocket-Protocol"))
		assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", s.resp.Header.Get("Sec-WebSocket-Accept"), "the sample of RFC 6455, section 1.3")
		s.step("sent", `open {"protocols":["bearer.x","chat.v1"],"query":"a=b\u0026c=%20","mode":"stream"}`)
		s.write(wsframe.Text, "{}")
		require.Len(t, s.requests, 2)
		for _, r := range s.requests {
			want := http.Header{
				"Authorization": {"Bearer y"}, "Origin": {"https://example.org"}, "Cookie": {"a=b"},
				"Accept-Encoding": {"identity"}, "Content-Type": {"text/plain;charset=UTF-8"},
			}
			if r.exchange == "up" {
				want["Idempotency-Key"] = []string{}
			}
			assert.Equal(t, want, r.header)
		}
	})
}

func TestWire_BatchesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t)
		s.answer("up", "waits 204 ours")
		s.connect(nil)
		s.write(wsframe.Text, "1")
		written := 1
		go func() {
			for _, size := range []int{30_000, 30_000, 30_000, 200_000, 5} {
				_, _ = s.Write(wsframe.AppendFrame(nil, wsframe.Client, wsframe.Text, []byte(strings.Repeat("1", size))))
				written++
			}
		}()
		for range 5 {
			synctest.Wait()
			s.proceed <- struct{}{}
		}
		var sizes []int
		for _, r := range s.sent("up") {
			_, messages, _ := strings.Cut(r.body, "\n")
			sizes = append(sizes, len(messages))
		}
		assert.Equal(t, []int{1, 60_001, 30_000, 200_000, 5}, sizes)
		assert.Equal(t, 6, written)
	})
}

func TestWire_PingsAreAnsweredAfterTheServerHasBeenAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t)
		s.answer("up", "waits 204 ours")
		s.connect(nil)
		pongs := make(chan string, 1)
		go func() {
			pong := make([]byte, 3)
			_, err := io.ReadFull(s.ReadWriteCloser, pong)
			assert.NoError(t, err)
			pongs <- string(pong)
		}()
		s.write(wsframe.Ping, "a")
		s.step("sent", `up {"secret":"s3cret","ack":0}`)
		assert.Empty(t, pongs)
		s.proceed <- struct{}{}
		assert.Equal(t, "\x8a\x01a", <-pongs)
	})
}
