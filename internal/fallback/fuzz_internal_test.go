package fallback

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// FuzzOpen checks that a body never changes more of the handshake than its query and its subprotocols: the request, as
// it would be written to a server, is parsed back.
func FuzzOpen(f *testing.F) {
	for _, body := range []string{
		`{"mode":"stream"}`, `{"mode":"poll","protocols":["bearer.x","a"],"query":"a=b&c=%20"}`, `{"mode":"poll","query":"a=\r\nb"}`,
		`{"mode":"poll","protocols":["a\r\nX: y"]}`, `{"mode":"poll","query":"a#b"}`, `{}`, `null`, `[]`, `{"mode":"poll","query":"?%zz"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		open, err := parseOpen(body)
		if err != nil {
			return
		}
		require.Contains(t, []Mode{Stream, Poll}, open.Mode)
		req := httptest.NewRequest(http.MethodPost, "/ws/http?open", strings.NewReader("body"))
		in := handshakeRequest(req, open)
		var text bytes.Buffer
		require.NoError(t, in.Write(&text))
		require.Equal(t, 1, strings.Count(text.String(), "\r\n\r\n"))
		require.LessOrEqual(t, strings.Count(text.String(), "\r\n"), 9)
		parsed, err := url.ParseRequestURI(in.RequestURI)
		require.NoError(t, err)
		require.Equal(t, "/ws/http", parsed.Path)
		require.Equal(t, open.Query, parsed.RawQuery)
		require.Equal(t, strings.Join(open.Protocols, ", "), in.Header.Get("Sec-WebSocket-Protocol"))
	})
}

// FuzzDown compares what is parsed with encoding/json.
func FuzzDown(f *testing.F) {
	for _, body := range []string{
		`{"secret":"x","mode":"poll"}`, `{"secret":"x","ack":18446744073709551615,"mode":"stream","waitMs":-1}`, `{"secret":"x","ack":-1,"mode":"stream"}`,
		`{"secret":"","mode":"poll"}`, `{"secret":"x","ack":1.5,"mode":"poll"}`, `{"secret":"x","mode":"poll","waitMs":9223372036854775807}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		down, err := parseDown(body)
		if err != nil {
			return
		}
		var want struct{ Ack uint64 }
		require.NoError(t, json.Unmarshal(body, &want))
		require.Equal(t, want.Ack, down.Ack)
		require.NotEmpty(t, down.Secret)
		require.GreaterOrEqual(t, down.wait(), 0*maxPollWait)
		require.LessOrEqual(t, down.wait(), maxPollWait)
	})
}

// A framesWriter keeps frames, and checks that each write has whole ones, and no more than a piece.
type framesWriter struct {
	bytes.Buffer

	t *testing.T
}

func (w *framesWriter) Write(p []byte) (int, error) {
	r := wsframe.NewReader(bytes.NewReader(p), math.MaxInt32, nil)
	longest := 0
	for message, _, err := r.Append(nil); ; message, _, err = r.Append(nil) {
		if err != nil {
			_, closed := errors.AsType[*wsframe.CloseError](err)
			require.True(w.t, closed || errors.Is(err, io.EOF), err)
			break
		}
		longest = max(longest, len(message))
	}
	require.NotEmpty(w.t, p)
	require.Less(w.t, len(p), max(longest, pieceBytes)+200)
	return w.Buffer.Write(p)
}

// FuzzUp reads the frames of a body with a reader of frames: there is a message for each line that is not empty, and
// nothing else. They are never all in memory.
func FuzzUp(f *testing.F) {
	for _, body := range []string{
		`{"secret":"x","seq":1,"ack":2}` + "\n{}\n\n[]", `{"secret":"x","seq":1,"close":{"code":1000,"reason":"é"}}`, `{"secret":"x","close":{}}` + "\n\xff", "\n\n",
		`{"secret":"x","close":{"code":65536}}`, `{"secret":"x","seq":1}` + "\n" + strings.Repeat("a", 70_000) + "\r\n",
		`{"secret":"x","seq":1,"close":{}}` + strings.Repeat("\na\n", 10_000),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		line, messages, _ := bytes.Cut(body, []byte("\n"))
		up, err := parseUp(line)
		if err != nil {
			return
		}
		frames := &framesWriter{t: t}
		require.NoError(t, writeFrames(frames, messages, up.Close))
		r := wsframe.NewReader(frames, math.MaxInt32, func([]byte) error { panic("a ping") })
		for want := range bytes.SplitSeq(messages, []byte("\n")) {
			if len(want) == 0 {
				continue
			}
			got, op, err := r.Append(nil)
			require.NoError(t, err)
			require.Equal(t, wsframe.Text, op)
			require.Equal(t, string(want), string(got))
		}
		_, _, err = r.Append(nil)
		if up.Close == nil {
			require.Error(t, err)
			return
		}
		var closed *wsframe.CloseError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, up.Close.Code, closed.Code)
		require.True(t, closed.Code >= 1000 && closed.Code <= 4999)
		require.True(t, closed.Code == wsframe.NoStatus || strings.HasPrefix(up.Close.Reason, closed.Reason))
		require.True(t, utf8.ValidString(closed.Reason))
	})
}

// FuzzPeerAnswer checks that no answer of a node is a panic, and that answers are parsed as they were encoded.
func FuzzPeerAnswer(f *testing.F) {
	f.Add([]byte{}, uint64(0), false)
	f.Add([]byte("id: 1\ndata: {}\n\n"), uint64(math.MaxUint64), true)
	f.Fuzz(func(t *testing.T, text []byte, last uint64, end bool) {
		_ = parsePeerAnswer(text)
		want := peerAnswer{http.StatusOK, batch{text: text, last: last, end: end}}
		got := parsePeerAnswer(want.encode())
		assert.Equal(t, string(text), string(got.batch.text))
		got.batch.text = text
		assert.Equal(t, want, got)
	})
}

func TestSecret_Parsing(t *testing.T) {
	s := newSecret(hashNode("node"))
	parsed, ok := parseSecret(s.String())
	assert.True(t, ok)
	assert.Equal(t, s, parsed)
	assert.Equal(t, hashNode("node"), parsed.node())
	for _, text := range []string{"", "x", s.String() + "A", s.String() + "\n", strings.Repeat("=", len(s.String())), strings.Repeat("+", len(s.String()))} {
		_, ok := parseSecret(text)
		assert.False(t, ok, text)
	}
	assert.NotEqual(t, s, newSecret(hashNode("node")))
}
