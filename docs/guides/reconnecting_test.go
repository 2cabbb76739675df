package guides_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	goclient "github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/closecodes"
)

// delays returns the least and the longest delay of a client before an attempt.
func delays(code int, demanded time.Duration, attempt int) (least, most time.Duration) {
	delay := func(random float64) time.Duration {
		return closecodes.Of(code).Delay(demanded, attempt, closecodes.MinBackoff, closecodes.MaxBackoff, func() float64 { return random })
	}
	return delay(0), delay(1)
}

// codes returns the close codes with a reaction.
func codes(reactions ...closecodes.Reaction) string {
	var text []string
	for _, r := range closecodes.Rules {
		for _, reaction := range reactions {
			if r.Reaction != reaction {
				continue
			}
			for _, code := range r.Codes {
				text = append(text, fmt.Sprint(code))
			}
		}
	}
	return strings.Join(text, ", ")
}

// reconnecting draws the delays of a client, after it has compared them with those of the Go client.
func reconnecting(t *testing.T) []byte {
	const attempts = 7
	for attempt, delay := range delaysOfClient(t, 20) {
		least, most := delays(1006, 0, attempt)
		assert.GreaterOrEqual(t, delay, least)
		assert.LessOrEqual(t, delay, most)
	}
	c := &delayChart{canvas: canvas{
		title: "How long a client waits to reconnect", width: diagramWidth, sizes: diagramSizes,
		description: "The delay is random, and its upper bound doubles with each attempt, up to 20 seconds. Some close codes have a longer first delay, " +
			"and retryAfterMs is added to it. After some close codes, the client does not connect again.",
	}}
	c.y = c.top("a random time in the blue bar") + 4*px
	for attempt := range attempts {
		name := fmt.Sprint("attempt ", attempt+1)
		if attempt == attempts-1 {
			name += " …"
		}
		least, most := delays(1006, 0, attempt)
		c.bar(name, least, most)
	}
	c.head("The first attempt after other close codes")
	least, most := delays(1012, 0, 0)
	c.bar(codes(closecodes.Return), least, most)
	least, most = delays(1013, 0, 0)
	c.bar(codes(closecodes.ReturnLater), least, most)
	c.head("The same with retryAfterMs: 7000 in the reason")
	least, most = delays(1013, 7*second, 0)
	c.bar("any code", least, most)
	c.axis()
	c.head("No more attempts")
	c.rule(codes(closecodes.Stop), "at once")
	c.rule(codes(closecodes.Authenticate), "after one attempt with a new token")
	c.rule(codes(closecodes.CorrectOnce), "if the next connection ends so, too")
	c.rule("4000 and higher", "if retryAfterMs is null")
	c.y += 4 * px
	c.text(margin, c.y+14*px, "note", "After a connection of %v or longer: attempt 1.", closecodes.HealthyAfter)
	return c.file(c.y + 30*px)
}

// delaysOfClient returns how long the Go client waits before attempts that all fail.
func delaysOfClient(t *testing.T, n int) (delays []time.Duration) {
	var last time.Time
	failed := make(chan struct{}, 1000)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if !last.IsZero() {
			delays = append(delays, time.Since(last))
		}
		last = time.Now()
		failed <- struct{}{}
		return nil, errors.New("there is no server")
	}}
	c := goclient.New("ws://example.com/", &goclient.Options{HTTPClient: &http.Client{Transport: transport}, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	connected := make(chan error, 1)
	go func() { connected <- c.Connect(ctx) }()
	for range n + 1 {
		<-failed
	}
	cancel()
	require.Error(t, <-connected)
	require.NoError(t, c.Close(context.Background()))
	require.GreaterOrEqual(t, len(delays), n)
	return delays
}

// A delayChart has bars along an axis of seconds.
type delayChart struct {
	canvas

	y int
}

const (
	chartLeft  = 112 * px
	chartRight = diagramWidth - 24*px
	chartSpan  = 21 * second
)

func (c *delayChart) x(at time.Duration) int {
	return chartLeft + int(int64(at)*int64(chartRight-chartLeft)/int64(chartSpan))
}

func (c *delayChart) head(text string) {
	c.text(margin, c.y+24*px, "strong", "%s", text)
	c.y += 32 * px
}

// bar draws the range of a delay. Its text is where there is room.
func (c *delayChart) bar(name string, least, most time.Duration) {
	const high = 22 * px
	c.text(margin, c.y+16*px, "note", "%s", name)
	c.box("limit", c.x(least), c.y+3*px, c.x(most)-c.x(least), high-6*px)
	text := fmt.Sprintf("%.1f–%.1f s", least.Seconds(), most.Seconds())
	if most < 12*second {
		c.text(c.x(most)+8*px, c.y+16*px, "note", "%s", text)
	} else {
		c.text((c.x(least)+c.x(most))/2, c.y+16*px, "note mid", "%s", text)
	}
	c.y += high
}

func (c *delayChart) axis() {
	c.y += 4 * px
	path(&c.front, "axis", "M%d,%dH%d", chartLeft, c.y, chartRight)
	for at := time.Duration(0); at < chartSpan; at += 5 * second {
		path(&c.front, "axis", "M%d,%dv40", c.x(at), c.y)
		c.text(c.x(at), c.y+19*px, "note mid", "%d s", at/second)
	}
	c.y += 22 * px
}

func (c *delayChart) rule(codes, reaction string) {
	c.text(margin, c.y+14*px, "code bad", "%s", codes)
	c.text(margin+150*px, c.y+14*px, "note", "%s", reaction)
	c.y += 22 * px
}
