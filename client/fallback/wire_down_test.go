//go:build !js

package fallback_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sleep"
)

func TestWire_DownContinuesBehindTheLastEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		s.send("id: 1\ndata: {\"n\":1}\n\nid: 2\ndata: {\"n\"") // cut
		e.next()
		synctest.Wait()
		_ = s.last().CloseWithError(errors.New("cut"))
		assert.Equal(t, []string{`{"secret":"s3cret","ack":1,"mode":"stream"}`}, s.sent("down"))
		s.send("id: 1\ndata: {\"n\":1}\n\nid: 2\ndata: {\"n\":2}\n\n") // the first one again
		assert.Equal(t, `{"n":2}`, e.next())
		s.send("id: 4\ndata: {\"n\":4}\n\n")
		e.ended(0, "event 4 does not follow event 2")
	})
}

func TestWire_DownIsRepeatedForTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		attempts := 0
		s.down = func(req *http.Request) (*http.Response, error) {
			if attempts++; attempts < 4 {
				return response(http.StatusBadGateway, false), nil
			}
			resp := s.stream(req.Context())
			s.send("id: 1\ndata: {}\n\n")
			return resp, nil
		}
		_ = s.last().Close()
		assert.Equal(t, "{}", e.next())
		s.down = fails
		_ = s.last().Close()
		start := time.Now()
		e.ended(0, "no response of the server for 10s: unreachable")
		assert.InDelta(t, 8, time.Since(start).Seconds(), 2.1)
	})
}

func TestWire_UnknownConnectionIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t, down: answers(http.StatusConflict, true)}
		e := s.connect(t, nil)
		_ = s.last().Close()
		e.ended(0, "does not know the connection")
		assert.Len(t, s.sent("down"), 1)
	})
}

func TestWire_ResponsesThatEndAtOnceAreNotAskedForInALoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		s.down = func(*http.Request) (*http.Response, error) { return response(http.StatusOK, true), nil }
		s.connect(t, nil)
		_ = s.last().Close()
		time.Sleep(time.Minute)
		assert.InDelta(t, 20, len(s.sent("down")), 8)
	})
}

func TestWire_SilentStreamIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		for range 10 {
			time.Sleep(15 * time.Second)
			s.send(":\n\n")
		}
		assert.Empty(t, s.sent("down"))
		time.Sleep(41 * time.Second)
		assert.Equal(t, []string{`{"secret":"s3cret","ack":0,"mode":"stream"}`}, s.sent("down"))
		s.send("id: 1\ndata: {}\n\n")
		assert.Equal(t, "{}", e.next())
	})
}

// While the client does not read, the stream is not silent.
func TestWire_SlowClientDoesNotReplaceTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{t: t}
		e := s.connect(t, nil)
		s.send("id: 1\ndata: {}\n\n")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, s.sent("down"))
		e.next()
	})
}

func TestWire_MuteStreamBecomesPolls(t *testing.T) {
	for name, stream := range map[string]func(req *http.Request) (*http.Response, error){
		"held back":               held,
		"without a byte":          mute,
		"middleware cannot flush": answers(http.StatusNotImplemented, true),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{t: t}
				s.open = func(req *http.Request) (*http.Response, error) {
					if strings.Contains(bodyOf(req), `"stream"`) {
						return stream(req)
					}
					resp := response(http.StatusOK, true)
					resp.Body = io.NopCloser(strings.NewReader("event: open\ndata: {\"secret\":\"s3cret\"}\n\nid: 1\ndata: {\"n\":1}\n\n"))
					return resp, nil
				}
				n := 1
				s.down = func(req *http.Request) (*http.Response, error) {
					if err := sleep.For(req.Context(), 25*time.Second); err != nil {
						return nil, err
					}
					resp := response(http.StatusOK, true)
					if n++; n%2 == 0 {
						resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf("id: %d\ndata: {\"n\":%d}\n\n", n/2+1, n/2+1)))
					}
					return resp, nil
				}
				start := time.Now()
				e := s.connect(t, nil)
				assert.LessOrEqual(t, time.Since(start), (5+3)*time.Second)
				for i := range 3 {
					assert.Equal(t, fmt.Sprintf(`{"n":%d}`, i+1), e.next())
				}
				assert.Equal(t, []string{
					`{"secret":"s3cret","ack":1,"mode":"poll"}`, `{"secret":"s3cret","ack":2,"mode":"poll"}`, `{"secret":"s3cret","ack":2,"mode":"poll"}`, `{"secret":"s3cret","ack":3,"mode":"poll"}`,
				}, s.sent("down"))
			})
		})
	}
}

func TestWire_MuteDownBecomesPolls(t *testing.T) {
	for name, stream := range map[string]func(*http.Request) (*http.Response, error){
		"held back":      held,
		"without a byte": mute,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{t: t}
				s.down = func(req *http.Request) (*http.Response, error) {
					if strings.Contains(bodyOf(req), `"stream"`) {
						return stream(req)
					}
					resp := response(http.StatusOK, true)
					resp.Body = io.NopCloser(strings.NewReader("id: 1\ndata: {}\n\n"))
					return resp, nil
				}
				e := s.connect(t, nil)
				_ = s.last().Close()
				assert.Equal(t, "{}", e.next())
				assert.Equal(t, `{"secret":"s3cret","ack":0,"mode":"poll"}`, s.sent("down")[1])
			})
		})
	}
}

// held does not answer.
func held(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// mute answers with a stream that has no events.
func mute(req *http.Request) (*http.Response, error) {
	return (&script{}).stream(req.Context()), nil
}
