package fallback_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rawConn is a connection over HTTP without a client library: docs/protocol.md, section 14.
type rawConn struct {
	t      *testing.T
	client *http.Client
	url    string
	secret string
	events *bufio.Scanner // of the open response
	seq    int
}

// An event is a Server-Sent Event.
type event struct {
	name, data string
	id         int
}

// openRaw opens a connection in mode stream.
func openRaw(t *testing.T, client *http.Client, url string) *rawConn {
	t.Helper()
	c := &rawConn{t: t, client: client, url: url}
	resp := c.post("open", []byte(`{"mode":"stream"}`))
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { _ = resp.Body.Close() })
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	c.events = bufio.NewScanner(resp.Body)
	opened := c.receive()
	require.Equal(t, "open", opened.name, opened.data)
	var welcome struct{ Secret string }
	require.NoError(t, json.Unmarshal([]byte(opened.data), &welcome))
	c.secret = welcome.Secret
	return c
}

func (c *rawConn) post(action string, body []byte) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"?"+action, bytes.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	resp, err := c.client.Do(req)
	require.NoError(c.t, err)
	return resp
}

// receive returns the next event.
func (c *rawConn) receive() event {
	c.t.Helper()
	e := event{name: "message"}
	for c.events.Scan() {
		field, value, _ := strings.Cut(c.events.Text(), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			id, err := strconv.Atoi(value)
			require.NoError(c.t, err)
			e.id = id
		case "data":
			e.data = value
		case "":
			if e.data != "" {
				return e
			}
		}
	}
	require.Fail(c.t, "the response has ended", "%v", c.events.Err())
	return e
}

// send sends messages in one request, and returns its status.
func (c *rawConn) send(messages ...string) int {
	c.t.Helper()
	c.seq++
	head, err := json.Marshal(map[string]any{"secret": c.secret, "seq": c.seq})
	require.NoError(c.t, err)
	resp := c.post("up", []byte(strings.Join(append([]string{string(head)}, messages...), "\n")))
	require.NoError(c.t, resp.Body.Close())
	return resp.StatusCode
}

// TestSite_AnswersWithoutABrowser sends what the page sends.
func TestSite_AnswersWithoutABrowser(t *testing.T) {
	s := newSite(t, 1, "")
	resp, err := http.Get(s.nodes[0] + "/ws/http")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, []any{http.StatusNoContent, "1"}, []any{resp.StatusCode, resp.Header.Get("Penstock-Fallback")})

	c := openRaw(t, http.DefaultClient, s.nodes[0]+"/ws/http")
	assert.Equal(t, http.StatusNoContent, c.send(
		`{"type":"$ws:subscribe","meta":{"correlationId":"1"},"payload":{"topic":"page/ann"}}`,
		`{"type":"NUMBER","meta":{},"payload":{"page":"ann","n":1}}`,
		`{"type":"ASK","meta":{"correlationId":"2"},"payload":{"page":"ann","n":1}}`,
	))
	var types []string
	for id := 1; id <= 3; id++ {
		e := c.receive()
		assert.Equal(t, id, e.id)
		var envelope struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(e.data), &envelope))
		types = append(types, envelope.Type)
	}
	assert.ElementsMatch(t, []string{"$ws:subscribed", "ECHO", "ANSWER"}, types)
	assert.Equal(t, []int{1}, s.of("ann").numbers)
}
