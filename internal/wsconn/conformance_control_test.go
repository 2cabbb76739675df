package wsconn_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestConformance_PingsAndPongs is group 2.
func TestConformance_PingsAndPongs(t *testing.T) {
	t.Parallel()
	runWireCases(t, len(deliveries), wireCases("", listed(t, "pings and pongs")))
}

// TestConformance_FloodOfControlFrames sends far more control frames than the server accepts at
// once, which is 100, and more empty fragments in a row. RFC 6455 sets no limit.
func TestConformance_FloodOfControlFrames(t *testing.T) {
	t.Parallel()
	runWireCases(t, 1, wireCases("", listed(t, "flood")))
}

// TestConn_ControlFramesHaveATokenBucket checks the limit of control frames exactly: 20 a
// second, with a burst of 100.
func TestConn_ControlFramesHaveATokenBucket(t *testing.T) {
	for _, tt := range []struct {
		name     string
		burst    int
		interval time.Duration
		count    int
		closes   bool
	}{
		{name: "a burst of 100", burst: 100},
		{name: "a burst of 101", burst: 101, closes: true},
		{name: "100, then 20 a second", burst: 100, interval: 50 * time.Millisecond, count: 500},
		{name: "a ping every 80 ms", interval: 80 * time.Millisecond, count: 1000},
		{name: "40 a second for 4 seconds", interval: 25 * time.Millisecond, count: 160},
		{name: "40 a second for 6 seconds", interval: 25 * time.Millisecond, count: 240, closes: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, ended := pipe(t)
				send := func() {
					_, _ = client.Write(clientFrame(fin|ping, "x"))
				}
				for range tt.burst {
					send()
				}
				for range tt.count {
					time.Sleep(tt.interval)
					send()
				}
				time.Sleep(2 * time.Second) // longer than CloseTimeout
				synctest.Wait()
				select {
				case code := <-ended:
					require.True(t, tt.closes, "closed with %d", code)
					require.Equal(t, 1008, code)
				default:
					require.False(t, tt.closes, "still open")
				}
			})
		})
	}
}

// pipe connects a client to a server over a pipe, so that the time of a synctest bubble passes
// for both. The channel receives the close code when the connection has ended. What the server
// sends is discarded.
func pipe(t *testing.T) (client net.Conn, ended <-chan int) {
	client, server := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, client)
		_ = client.Close() // the server waits for it behind a close frame
	}()
	opts := options()
	opts.CloseTimeout = time.Second
	c, err := wsconn.Accept(hijackable{httptest.NewRecorder(), server}, upgradeRequest(), "", opts, newHandler())
	require.NoError(t, err)
	codes := make(chan int, 1)
	go func() {
		tr := transport{}
		tr.echo(c)
		code, _ := c.Status()
		codes <- code
	}()
	t.Cleanup(func() { _ = client.Close() })
	return client, codes
}

// upgradeRequest returns the request of a handshake.
func upgradeRequest() *http.Request {
	r, _ := http.ReadRequest(bufio.NewReader(strings.NewReader(handshake)))
	return r
}

// hijackable is a response whose connection is the end of a pipe.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}
