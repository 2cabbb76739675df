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

func TestWire_MessagesShareRequestsWhileOneIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		proceed := make(chan struct{})
		s.up = func(*http.Request) (*http.Response, error) {
			<-proceed
			return response(http.StatusNoContent, true), nil
		}
		e := s.connect(t, nil)
		e.write(wsframe.Text, `{"n":1}`)
		synctest.Wait()
		e.write(wsframe.Text, "{\n\"n\":\r\n2}")
		e.write(wsframe.Text, `{"n":3}`)
		require.Len(t, s.sent("up"), 1)
		proceed <- struct{}{}
		assert.Equal(t, []string{
			`{"secret":"s3cret","seq":1,"ack":0}` + "\n" + `{"n":1}`,
			`{"secret":"s3cret","seq":2,"ack":0}` + "\n" + `{ "n":  2}` + "\n" + `{"n":3}`,
		}, s.sent("up"))
		close(proceed)
	})
}

func TestWire_BatchesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		proceed := make(chan struct{})
		s.up = func(*http.Request) (*http.Response, error) {
			<-proceed
			return response(http.StatusNoContent, true), nil
		}
		e := s.connect(t, nil)
		e.write(wsframe.Text, "1")
		synctest.Wait()
		written := 1
		go func() {
			for _, size := range []int{30_000, 30_000, 30_000, 200_000, 5} {
				e.write(wsframe.Text, strings.Repeat("1", size))
				written++
			}
		}()
		for range 5 {
			synctest.Wait()
			proceed <- struct{}{}
		}
		var sizes []int
		for _, body := range s.sent("up") {
			_, messages, _ := strings.Cut(body, "\n")
			sizes = append(sizes, len(messages))
		}
		assert.Equal(t, []int{1, 60_001, 30_000, 200_000, 5}, sizes)
		assert.Equal(t, 6, written)
	})
}

func TestWire_SameBytesAgainUntilTheServerHasThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		answers := []func(req *http.Request) (*http.Response, error){
			fails,
			answers(http.StatusBadGateway, false),
			answers(http.StatusNoContent, false), // of a proxy
			func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			},
			func(*http.Request) (*http.Response, error) {
				resp := response(http.StatusServiceUnavailable, true)
				resp.Header.Set("Retry-After", "7")
				return resp, nil
			},
			answers(http.StatusNoContent, true),
		}
		var at []time.Time
		s.up = func(req *http.Request) (*http.Response, error) {
			at = append(at, time.Now())
			answer := answers[0]
			answers = answers[1:]
			return answer(req)
		}
		e := s.connect(t, nil)
		e.write(wsframe.Text, "{}")
		time.Sleep(time.Minute)
		bodies := s.sent("up")
		require.Len(t, bodies, 6)
		for _, body := range bodies {
			assert.Equal(t, bodies[0], body)
		}
		assert.GreaterOrEqual(t, at[4].Sub(at[3]), 10*time.Second)
		assert.GreaterOrEqual(t, at[5].Sub(at[4]), 7*time.Second)
		s.send("id: 1\ndata: {}\n\n")
		assert.Equal(t, "{}", e.next())
	})
}

func TestWire_ConnectionIsLostAfterThirtySecondsWithoutUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t, up: fails}
		e := s.connect(t, nil)
		start := time.Now()
		e.write(wsframe.Text, "{}")
		e.ended(0, "a request has failed for 30s: unreachable")
		assert.InDelta(t, 30, time.Since(start).Seconds(), 5)
	})
}

func TestWire_AnswersThatEndAConnection(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		code   int
		text   string
	}{
		"unknown":   {http.StatusConflict, 0, "does not know the connection"},
		"malformed": {http.StatusBadRequest, 0, "does not know the connection"},
		"too big":   {http.StatusRequestEntityTooLarge, 1009, "a message is too big for the server"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{t: t, up: answers(test.status, true)}
				e := s.connect(t, nil)
				e.write(wsframe.Text, "{}")
				e.ended(test.code, test.text)
				assert.Len(t, s.sent("up"), 1)
			})
		})
	}
}

// An up for a connection that the server has closed is refused like one for an unknown connection.
func TestWire_CloseMayArriveAfterTheRefusalOfAnUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t, up: answers(http.StatusConflict, true)}
		e := s.connect(t, nil)
		e.write(wsframe.Text, "{}")
		time.Sleep(4 * time.Second)
		s.send("event: close\nid: 1\ndata: {\"code\":4401,\"reason\":\"expired\"}\n\n")
		e.ended(4401, "expired")
	})
}

func TestWire_EventsAreAcknowledgedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		s.send("id: 1\ndata: {\"n\":1}\n\nevent: ping\nid: 2\ndata:\n\nevent: news\ndata: unknown\n\nid: 3\ndata: {\"n\":3}\n\n")
		assert.Equal(t, `{"n":1}`, e.next())
		assert.Equal(t, `{"n":3}`, e.next())
		time.Sleep(5*time.Second - time.Millisecond)
		assert.Empty(t, s.sent("up"))
		time.Sleep(time.Millisecond)
		assert.Equal(t, []string{`{"secret":"s3cret","ack":3}`}, s.sent("up"))
		time.Sleep(time.Minute)
		assert.Len(t, s.sent("up"), 1)

		s.send("id: 4\ndata: {\"n\":4}\n\n") // with a message of the client
		e.next()
		synctest.Wait()
		e.write(wsframe.Text, "{}")
		assert.Equal(t, `{"secret":"s3cret","seq":1,"ack":4}`+"\n{}", s.sent("up")[1])
		time.Sleep(time.Minute)
		assert.Len(t, s.sent("up"), 2)

		s.send("id: 5\ndata: \"" + strings.Repeat("a", 16<<10) + "\"\n\n") // at once
		e.next()
		assert.Equal(t, `{"secret":"s3cret","ack":5}`, s.sent("up")[2])
	})
}

// The server may read messages only when there is room for events, which an acknowledgment makes.
func TestWire_AcknowledgmentsDoNotWaitForMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		acknowledged := make(chan struct{})
		s.up = func(req *http.Request) (*http.Response, error) {
			if strings.Contains(bodyOf(req), `"seq"`) {
				<-acknowledged
			} else {
				close(acknowledged)
			}
			return response(http.StatusNoContent, true), nil
		}
		e := s.connect(t, nil)
		e.write(wsframe.Text, "{}")
		synctest.Wait()
		s.send("id: 1\ndata: {}\n\n")
		e.next()
		<-acknowledged
	})
}

func TestWire_BinaryMessageClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		e.write(wsframe.Binary, "{}")
		e.ended(1003, "messages over HTTP are text")
		assert.Empty(t, s.sent("up"))
	})
}

func TestWire_PingsAreAnsweredAfterTheServerHasBeenAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		proceed := make(chan struct{})
		s.up = func(*http.Request) (*http.Response, error) {
			<-proceed
			return response(http.StatusNoContent, true), nil
		}
		e := s.connect(t, nil)
		pongs := make(chan string, 1)
		go func() {
			pong := make([]byte, 3)
			_, err := io.ReadFull(e.ReadWriteCloser, pong)
			assert.NoError(t, err)
			pongs <- string(pong)
		}()
		e.write(wsframe.Ping, "a")
		assert.Equal(t, []string{`{"secret":"s3cret","ack":0}`}, s.sent("up"))
		assert.Empty(t, pongs)
		close(proceed)
		assert.Equal(t, "\x8a\x01a", <-pongs)
	})
}
