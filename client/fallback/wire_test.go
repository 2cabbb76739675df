//go:build !js

package fallback_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsframe"
)

func TestWire_OpenHasWhatTheHandshakeHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		s.open = func(req *http.Request) (*http.Response, error) {
			resp := s.stream(req.Context())
			s.send("event: open\ndata: {\"secret\":\"s3cret\",\"protocol\":\"chat.v1\"}\n\n")
			return resp, nil
		}
		e := s.connect(t, http.Header{
			"Sec-Websocket-Protocol": {"bearer.x, chat.v1"}, "Authorization": {"Bearer y"}, "Origin": {"https://example.org"}, "Cookie": {"a=b"},
		})
		assert.Equal(t, "chat.v1", e.resp.Header.Get("Sec-WebSocket-Protocol"))
		assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", e.resp.Header.Get("Sec-WebSocket-Accept"), "the sample of RFC 6455, section 1.3")
		assert.Equal(t, []string{`{"protocols":["bearer.x","chat.v1"],"query":"a=b\u0026c=%20","mode":"stream"}`}, s.sent("open"))
		e.write(wsframe.Text, "{}")
		synctest.Wait()
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

func TestWire_ServerCloses(t *testing.T) {
	for data, want := range map[string]struct {
		code int
		text string
	}{
		`{"code":4401,"reason":"expired"}`: {4401, "expired"},
		`{"code":1005,"reason":""}`:        {wsframe.NoStatus, ""},
		`{"code":1006,"reason":""}`:        {0, "does not know the connection"},
		`{"code"`:                          {0, "JSON"},
	} {
		t.Run(data, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{t: t}
				e := s.connect(t, nil)
				s.send("event: close\nid: 1\ndata: " + data + "\n\n")
				e.ended(want.code, want.text)
				if want.code > 0 {
					_, _ = e.Write(wsframe.AppendClose(nil, wsframe.Client, want.code, want.text))
				}
				require.NoError(t, e.Close())
				time.Sleep(time.Minute)
				assert.Empty(t, s.sent("up"), "the server has closed it")
				assert.Empty(t, s.sent("down"))
			})
		})
	}
}

func TestWire_RefusedConnectionIsClosedWithTheCode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		s.open = func(*http.Request) (*http.Response, error) {
			resp := response(http.StatusOK, true)
			resp.Body = io.NopCloser(strings.NewReader("event: close\nid: 1\ndata: {\"code\":4401,\"reason\":\"no token\"}\n\n"))
			return resp, nil
		}
		e := s.connect(t, nil)
		e.ended(4401, "no token")
	})
}

func TestWire_ClientCloses(t *testing.T) {
	for code, want := range map[int]string{1000: `{"code":1000,"reason":"done"}`, wsframe.NoStatus: `{"code":0,"reason":""}`} {
		bubbleNamed(t, code, func(t *testing.T) {
			s := &script{t: t}
			e := s.connect(t, nil)
			e.write(wsframe.Text, "{}")
			synctest.Wait()
			_, err := e.Write(wsframe.AppendClose(nil, wsframe.Client, code, "done"))
			require.NoError(t, err)
			assert.Equal(t, `{"secret":"s3cret","ack":0,"close":`+want+`}`, s.sent("up")[1])
			s.send("event: close\nid: 1\ndata: {\"code\":1000,\"reason\":\"done\"}\n\n")
			e.ended(1000, "done")
		})
	}
}

func TestWire_OpenThatFails(t *testing.T) {
	events := func(text string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			resp := response(http.StatusOK, true)
			resp.Body = io.NopCloser(strings.NewReader(text))
			return resp, nil
		}
	}
	for name, test := range map[string]struct {
		open   func(*http.Request) (*http.Response, error)
		status int
		text   string
	}{
		"full":            {answers(http.StatusServiceUnavailable, true), 503, ""},
		"not mounted":     {answers(http.StatusNotFound, false), 404, ""},
		"unreachable":     {fails, 0, "unreachable"},
		"page of a proxy": {answers(http.StatusOK, false), 0, "ended before the connection was open"},
		"no event":        {events(""), 0, "ended before the connection was open"},
		"another event":   {events("id: 1\ndata: {}\n\n"), 0, "ended before the connection was open"},
		"invalid event":   {events("event: open\ndata: {\n\n"), 0, "invalid event"},
		"without secret":  {events("event: open\ndata: {}\n\n"), 0, "invalid event"},
		"invalid refusal": {events("event: close\ndata: {\n\n"), 0, "invalid event"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{t: t, open: test.open}
				resp, err := s.handshake(t, nil)
				if test.status == 0 {
					require.ErrorContains(t, err, test.text)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, test.status, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}
