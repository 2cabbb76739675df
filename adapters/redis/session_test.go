package redis_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router/routertest"
)

// A note is published on topics with a history.
type note struct {
	N int `json:"n"`
}

func (note) MessageType() string { return "NOTE" }

// ask sends a call of the protocol, and returns the answer without what precedes it.
func ask(t *testing.T, c *routertest.Conn, typ, payload string) routertest.Frame {
	t.Helper()
	c.SendText(fmt.Sprintf(`{"type":%q,"meta":{"correlationId":"c"},"payload":%s}`, typ, payload))
	for {
		if frame := c.Next(); frame.Meta.CorrelationID == "c" {
			return frame
		}
	}
}

func decodeToken(t *testing.T, frame routertest.Frame) string {
	t.Helper()
	var payload struct {
		Session struct{ Token string } `json:"session"`
	}
	require.NoError(t, json.Unmarshal(frame.Payload, &payload))
	require.NotEmpty(t, payload.Session.Token, frame.Text)
	return payload.Session.Token
}
