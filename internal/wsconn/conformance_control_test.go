package wsconn_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestConformance_PingsAndPongs is group 2.
func TestConformance_PingsAndPongs(t *testing.T) {
	t.Parallel()
	pongs := func(payloads ...string) (frames []serverFrame) {
		for _, p := range payloads {
			frames = append(frames, serverFrame{fin | pong, p})
		}
		return frames
	}
	var ten []string
	var tenFrames, mixed [][]byte
	for i := range 10 {
		payload := fmt.Sprintf("payload-%d", i)
		ten = append(ten, payload)
		tenFrames = append(tenFrames, clientFrame(fin|ping, payload))
		mixed = append(mixed, clientFrame(fin|pong, "unsolicited"), clientFrame(fin|ping, payload))
	}
	notUTF8 := "\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
	runWireCases(t, len(deliveries), []wireCase{
		{name: "ping without payload", frames: [][]byte{clientFrame(fin|ping, "")}, want: pongs("")},
		{name: "ping with text", frames: [][]byte{clientFrame(fin|ping, "Hello, world!")}, want: pongs("Hello, world!")},
		{name: "ping that is not UTF-8", frames: [][]byte{clientFrame(fin|ping, notUTF8)}, want: pongs(notUTF8)},
		{name: "ping of 125 bytes", frames: [][]byte{clientFrame(fin|ping, repeated(125))}, want: pongs(repeated(125))},
		{name: "ping of 126 bytes", frames: [][]byte{clientFrame(fin|ping, repeated(126))}, code: 1002},
		{name: "ping of 65536 bytes", frames: [][]byte{clientFrame(fin|ping, repeated(65536))}, code: 1002},
		{name: "pong of 126 bytes", frames: [][]byte{clientFrame(fin|pong, repeated(126))}, code: 1002},
		{name: "unsolicited pong", frames: [][]byte{clientFrame(fin|pong, "")}},
		{name: "unsolicited pong with payload", frames: [][]byte{clientFrame(fin|pong, "unsolicited")}},
		{name: "unsolicited pong of 125 bytes", frames: [][]byte{clientFrame(fin|pong, repeated(125))}},
		{
			name:   "unsolicited pong before a ping",
			frames: [][]byte{clientFrame(fin|pong, "unsolicited"), clientFrame(fin|ping, "ping")},
			want:   pongs("ping"),
		},
		{name: "10 pings", frames: tenFrames, want: pongs(ten...)},
		{name: "10 pings and unsolicited pongs", frames: mixed, want: pongs(ten...)},
		{
			name:   "pings between messages",
			frames: [][]byte{clientFrame(fin|text, "a"), clientFrame(fin|ping, "1"), clientFrame(fin|text, "b"), clientFrame(fin|ping, "2")},
			want:   slices.Concat(echoes("a"), pongs("1"), echoes("b"), pongs("2")),
		},
	})
}

// TestConformance_FloodOfControlFrames sends far more control frames than the server accepts at
// once, which is 100. RFC 6455 sets no limit.
func TestConformance_FloodOfControlFrames(t *testing.T) {
	t.Parallel()
	runWireCases(t, 1, []wireCase{
		{name: "90 pongs", frames: [][]byte{bytes.Repeat(clientFrame(fin|pong, ""), 90)}},
		{
			name:   "90 pings",
			frames: [][]byte{bytes.Repeat(clientFrame(fin|ping, "x"), 90)},
			want:   slices.Repeat([]serverFrame{{fin | pong, "x"}}, 90),
		},
		{name: "400 pongs", frames: [][]byte{bytes.Repeat(clientFrame(fin|pong, ""), 400)}, code: 1008},
		{
			name:   "400 pongs inside a message",
			frames: [][]byte{clientFrame(text, "a"), bytes.Repeat(clientFrame(fin|pong, ""), 400)},
			code:   1008,
		},
		{
			name:   "16,000 empty fragments",
			frames: [][]byte{clientFrame(text, "a"), bytes.Repeat(clientFrame(continuation, ""), 16_000), clientFrame(fin|continuation, "b")},
			want:   echoes("ab"),
		},
		{
			name: "two times 10,000 empty fragments with data between",
			frames: [][]byte{
				clientFrame(text, "a"), bytes.Repeat(clientFrame(continuation, ""), 10_000),
				clientFrame(continuation, "b"), bytes.Repeat(clientFrame(continuation, ""), 10_000), clientFrame(fin|continuation, "c"),
			},
			want: echoes("abc"),
		},
		{
			name:   "20,000 empty fragments",
			frames: [][]byte{clientFrame(text, "a"), bytes.Repeat(clientFrame(continuation, ""), 20_000)},
			code:   1008,
		},
	})
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
					_, _ = client.Write(frame(fin|ping, "x"))
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
	r := httptest.NewRequest(http.MethodGet, "http://x/", http.NoBody)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		r.Header.Set(name, value)
	}
	go func() {
		_, _ = io.Copy(io.Discard, client)
		_ = client.Close() // the server waits for it behind a close frame
	}()
	opts := options()
	opts.CloseTimeout = time.Second
	c, err := wsconn.Accept(hijackable{httptest.NewRecorder(), server}, r, "", opts, newHandler())
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

// hijackable is a response whose connection is the end of a pipe.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}
