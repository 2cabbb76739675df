package load

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// controlID begins the correlation IDs of calls of the load itself.
const controlID = "load"

// ask makes a call that is not part of the measurement. Only one may be in progress.
func (c *conn) ask(ctx context.Context, typ, payload string) (*envelope, error) {
	id := controlID + strconv.FormatInt(time.Now().UnixNano(), 10)
	text := fmt.Appendf(nil, `{"type":%q,"meta":{"correlationId":%q},"payload":%s}`, typ, id, payload)
	writing, cancel := context.WithTimeout(context.Background(), c.Timeout) // the end of ctx would close the connection
	defer cancel()
	if err := c.ws.Write(writing, websocket.MessageText, text); err != nil {
		return nil, c.causeOf(ctx, err)
	}
	for {
		select {
		case e := <-c.control:
			if e.Meta.CorrelationID != id {
				continue // the answer to a call whose context has ended
			}
			if e.Type == "RPC_ERROR" {
				rejection := e.rejection()
				return nil, rejectedError{typ, string(rejection.Code), rejection.Message}
			}
			return e, nil
		case <-c.closed:
			return nil, c.causeOf(ctx, nil)
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: no answer: %w", typ, ctx.Err())
		}
	}
}

// causeOf returns why the connection has ended. It waits for the reader, which knows more than err,
// the error of a write.
func (c *conn) causeOf(ctx context.Context, err error) error {
	select {
	case <-c.closed:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-ctx.Done():
		return err
	}
}

// A position is a place among the publications of a topic.
type position struct {
	Epoch  string
	Offset int64
}

// subscribe subscribes the connection, or asks for the present position if it is subscribed.
func (c *conn) subscribe(ctx context.Context, topic string) (p position, err error) {
	payload, err := json.Marshal(map[string]any{"topic": topic, "positions": c.needsPositions()})
	if err != nil {
		return p, err
	}
	e, err := c.ask(ctx, "$ws:subscribe", string(payload))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(e.Payload, &p)
}
