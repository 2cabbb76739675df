//go:build !js

package fallback

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// lostAfter is how long a connection lives without a response with events. The server gives it up
// then, too.
const lostAfter = 10 * time.Second

// Delays before a request is sent again. They double with each attempt.
const (
	minRetryDelay = 500 * time.Millisecond
	maxRetryDelay = 4 * time.Second
)

// polling is the body of a down.
type polling struct {
	Secret string `json:"secret"`
	Ack    int64  `json:"ack"`
	Mode   string `json:"mode"`
}

// receive hands the events of all responses to the client.
func (c *conn) receive(r *response) {
	for fruitless := 0; ; {
		before, begun := c.received, time.Now()
		ended, err := c.receiveFrom(r)
		r.close()
		switch {
		case ended:
			return
		case errors.Is(err, errEventTooBig):
			c.cancel(err)
			return
		case errors.Is(err, errMute):
			c.mode = modePoll
		case c.received > before || time.Since(begun) > maxRetryDelay:
			fruitless = 0
		default:
			fruitless++
		}
		if r, err = c.nextResponse(fruitless); err != nil {
			c.cancel(err)
			return
		}
	}
}

// receiveFrom hands the events of a response to the client. It returns true if the connection has
// ended.
func (c *conn) receiveFrom(r *response) (ended bool, err error) {
	for {
		e, err := r.events.next()
		if err != nil {
			return c.ctx.Err() != nil, err
		}
		switch {
		case e.id == 0 || e.id <= c.received: // the client has it already
			continue
		case e.id != c.received+1:
			c.cancel(errors.Errorf(errors.Internal, "fallback: event %d does not follow event %d", e.id, c.received))
			return true, nil
		}
		switch e.name {
		case "", "message":
			if err := c.write(wsframe.Text, e.data); err != nil {
				c.cancel(err)
				return true, nil
			}
		case "close":
			var closed closing
			if err := json.Unmarshal(e.data, &closed); err != nil {
				c.cancel(err)
			} else {
				c.closeByServer(closed)
			}
			return true, nil
		}
		c.owe(len(e.data))
	}
}

// closeByServer ends the connection as the server has ended it. The client closes its end then.
func (c *conn) closeByServer(closed closing) {
	const abnormal = 1006 // no close frame may carry it
	if closed.Code == abnormal {
		c.cancel(errLost)
		return
	}
	code := closed.Code
	if code == 0 {
		code = wsframe.NoStatus
	}
	c.closeClient(code, closed.Reason)
}

// nextResponse continues behind the events that the client has. It waits first if the last
// responses have ended at once, without any.
func (c *conn) nextResponse(fruitless int) (*response, error) {
	deadline := time.Now().Add(lostAfter)
	delay := time.Duration(0)
	if fruitless > 0 {
		delay = retryDelay(fruitless, nil)
	}
	for attempt := 1; ; attempt++ {
		if err := rules.Sleep(c.ctx, delay); err != nil {
			return nil, err
		}
		r, err := c.down()
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, errLost):
			return nil, err
		case errors.Is(err, errMute):
			c.mode, delay = modePoll, 0
		default:
			delay = retryDelay(attempt, err)
		}
		if time.Now().Add(delay).After(deadline) {
			return nil, fmt.Errorf("fallback: no response of the server for %v: %w", lostAfter, err)
		}
	}
}

// down sends a down, and returns a response with events, or an error, which is errLost if the
// server does not have the connection any more.
func (c *conn) down() (*response, error) {
	body, err := json.Marshal(polling{c.secret, c.acknowledged(), c.mode})
	if err != nil {
		return nil, err
	}
	r, err := c.begin("down", body)
	switch {
	case err != nil:
		return nil, err
	case r.StatusCode == http.StatusOK && isOurs(r.Response):
		return r, nil
	}
	defer r.close()
	switch {
	case isUnknown(r.Response):
		return nil, errLost
	case r.StatusCode == http.StatusNotImplemented && isOurs(r.Response):
		return nil, errMute
	}
	return nil, newStatusError(r.Response)
}

// A statusError is an unexpected response.
type statusError struct {
	code       int
	status     string
	retryAfter time.Duration // 0 if it does not say
}

func newStatusError(resp *http.Response) *statusError {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return &statusError{resp.StatusCode, resp.Status, time.Duration(max(0, seconds)) * time.Second}
}

func (e *statusError) Error() string { return "the response is " + e.status }

// isOutage reports whether servers and proxies respond like this when they are overloaded or
// restarted.
func (e *statusError) isOutage() bool {
	switch e.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// retryDelay returns the delay before an attempt, counted from 1, after the one before has failed
// with err.
func retryDelay(attempt int, err error) time.Duration {
	delay := min(minRetryDelay<<min(attempt-1, 10), maxRetryDelay)
	delay = delay/2 + random.N(delay/2)
	if failed, ok := errors.AsType[*statusError](err); ok {
		delay = max(delay, failed.retryAfter)
	}
	return delay
}
