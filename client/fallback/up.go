//go:build !js

package fallback

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// How long an up may take, and how long it is repeated.
const (
	upTimeout   = 10 * time.Second
	lostAfterUp = 30 * time.Second
)

// An upHead is the first line of an up.
type upHead struct {
	Secret string   `json:"secret"`
	Seq    int64    `json:"seq,omitzero"` // 0: there are no messages
	Ack    int64    `json:"ack"`
	Close  *closing `json:"close,omitzero"`
}

// sendMessages sends what waits, one request at a time.
func (c *conn) sendMessages() {
	for seq := int64(0); ; {
		messages, closing, err := c.nextBatch()
		if err != nil {
			return
		}
		head := upHead{Secret: c.secret, Ack: c.acknowledged(), Close: closing}
		if len(messages) > 0 {
			seq++
			head.Seq = seq
		}
		body, err := json.Marshal(head)
		if err == nil {
			err = c.deliver(append(body, messages...))
		}
		switch {
		case errors.Is(err, errMessageTooBig):
			c.closeClient(codeTooBig, "a message is too big for the server")
			return
		case err != nil:
			c.upFailed(err)
			return
		}
		c.reuse(messages)
	}
}

// closeWait is how long the event close may arrive after the server has refused a request because
// it has closed the connection.
const closeWait = 5 * time.Second

// upFailed ends the connection after a request has failed for good.
func (c *conn) upFailed(err error) {
	if errors.Is(err, errLost) {
		_ = rules.Sleep(c.ctx, closeWait)
	}
	c.cancel(err)
}

// nextBatch waits for messages or the end of the client.
func (c *conn) nextBatch() (messages []byte, last *closing, err error) {
	for {
		c.mu.Lock()
		messages, last = c.waiting, c.closing
		c.waiting, c.spare, c.closing = c.spare, nil, nil
		c.mu.Unlock()
		if len(messages) > 0 || last != nil {
			signal(c.room)
			return messages, last, nil
		}
		c.reuse(messages)
		select {
		case <-c.changed:
		case <-c.ctx.Done():
			return nil, nil, context.Cause(c.ctx)
		}
	}
}

// reuse keeps the memory of messages that were sent.
func (c *conn) reuse(messages []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(messages) <= maxBatchBytes {
		c.spare = messages[:0]
	}
}

// deliver sends the same bytes until the server has received them.
func (c *conn) deliver(body []byte) error {
	deadline := time.Now().Add(lostAfterUp)
	for attempt := 1; ; attempt++ {
		err := c.up(body)
		if err == nil || errors.Is(err, errLost) || errors.Is(err, errMessageTooBig) {
			return err
		}
		delay := retryDelay(attempt, err)
		if time.Now().Add(delay).After(deadline) {
			return fmt.Errorf("fallback: a request has failed for %v: %w", lostAfterUp, err)
		}
		if err := rules.Sleep(c.ctx, delay); err != nil {
			return err
		}
	}
}

var errMessageTooBig = errors.New("fallback: a message is too big for the server")

// up sends a request. The same one may succeed later, unless the error is errLost or
// errMessageTooBig.
func (c *conn) up(body []byte) error {
	ctx, cancel := context.WithTimeout(c.ctx, upTimeout)
	defer cancel()
	resp, err := c.t.base.RoundTrip(repeatable(c.t.request(ctx, http.MethodPost, "up", c.header, body)))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	const maxErrorBytes = 4 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBytes)) // so that net/http can use the connection again
	switch {
	case resp.StatusCode == http.StatusNoContent && isOurs(resp):
		return nil
	case resp.StatusCode == http.StatusRequestEntityTooLarge:
		return errMessageTooBig
	case isUnknown(resp):
		return errLost
	}
	return newStatusError(resp)
}

// isUnknown reports whether a response says that the server does not have the connection any more.
func isUnknown(resp *http.Response) bool {
	return isOurs(resp) && (resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusBadRequest)
}

// owe notes that the client has the next event.
func (c *conn) owe(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received++
	if c.owed == 0 {
		c.ackTimer.Reset(ackAfter)
	}
	if c.owed += max(1, bytes); c.owed >= ackBytes {
		signal(c.ackDue)
	}
}

// acknowledged returns the ID of the last event, for a request that acknowledges it.
func (c *conn) acknowledged() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed = 0
	c.ackTimer.Stop()
	return c.received
}

// acknowledge sends acknowledgments when they are due, and no other request has carried them. They
// do not wait for messages: the server may receive those only when there is room for its events. An
// acknowledgment also precedes the answer to a ping, because it shows that the server is there.
func (c *conn) acknowledge() {
	for {
		select {
		case <-c.ackDue:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		due, pinged := c.owed > 0 || c.pinged, c.pinged
		pong := bytes.Clone(c.ping)
		c.pinged = false
		c.mu.Unlock()
		if !due {
			continue
		}
		body, err := json.Marshal(upHead{Secret: c.secret, Ack: c.acknowledged()})
		if err == nil {
			err = c.deliver(body)
		}
		if err == nil && pinged {
			err = c.write(wsframe.Pong, pong)
		}
		if err != nil {
			c.upFailed(err)
			return
		}
	}
}
