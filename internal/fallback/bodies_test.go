package fallback_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// announced is the length of a body of which only a beginning arrives.
const announced = 1_000_000

// stall sends the beginning of an up, and returns when the server waits for the rest or has answered.
// It returns what ends the request, and the channel of its status, which is closed if there was none.
func (c *client) stall(beginning string) (end func(), status <-chan int) {
	c.t.Helper()
	return c.stallOf(announced, beginning)
}

// stallOf is stall for a body of a length.
func (c *client) stallOf(length int64, beginning string) (end func(), status <-chan int) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	body := newStalledBody(beginning)
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, c.url+"?up", body))
	req.ContentLength = length
	answers := make(chan int, 1)
	go func() {
		defer close(answers)
		if resp, err := c.do(req); err == nil {
			answers <- resp.StatusCode
			_ = resp.Body.Close()
		}
	}()
	synctest.Wait()
	return func() { cancel(); close(body.release); synctest.Wait() }, answers
}

// TestUp_BytesThatHaveNotArrivedDoNotCount has more bodies of one line than Limits.InboundBytes permits, with forged
// secrets and right ones, for connections of the node that receives them and of another one. None delays what another
// client sends.
func TestUp_BytesThatHaveNotArrivedDoNotCount(t *testing.T) {
	for owner := range 2 {
		for name, forged := range map[string]bool{"forged": true, "right": false} {
			runSynctest(t, fmt.Sprintf("%s secret, owner %d", name, owner), func(t *testing.T) {
				handled := &recorder[int]{}
				c := newNodes(t, 2, router.Options{}, func(r *router.Router) {
					router.On(r, func(_ *router.Context, m Echo) error {
						handled.add(m.N)
						return nil
					})
				})
				c.choose = func() int { return owner }
				attacker, client := c.client(t), c.client(t)
				defer attacker.open("stream").close()
				defer client.open("stream").close()
				if last := len(attacker.secret) - 1; forged {
					attacker.secret = attacker.secret[:last] + otherThan(attacker.secret[last])
				}
				c.choose = func() int { return 0 }
				for range 70 {
					end, status := attacker.stall(attacker.batch(1))
					defer end()
					if forged {
						assert.Equal(t, http.StatusConflict, <-status, "before the rest arrives")
					}
				}
				start := time.Now()
				client.up(event(1))
				client.up(event(2) + strings.Repeat(" ", 40<<10))
				assert.Zero(t, time.Since(start))
				synctest.Wait()
				assert.Equal(t, []int{1, 2}, handled.all())
			})
		}
	}
}

// TestUp_ArrivedBytesOfOneAddressAreBounded has an address whose bodies would have all bytes, with connections of this
// node and of another one. Other addresses still have the other half.
func TestUp_ArrivedBytesOfOneAddressAreBounded(t *testing.T) {
	for owner := range 2 {
		runSynctest(t, fmt.Sprint("owner ", owner), func(t *testing.T) {
			c := newNodes(t, 2, router.Options{Limits: router.Limits{InboundBytes: 512 << 10}}, func(*router.Router) {})
			c.address = "[2001:db8::1]:1"
			var attackers []*client
			c.choose = func() int { return owner }
			for range 8 {
				attacker := c.client(t)
				defer attacker.open("stream").close()
				attackers = append(attackers, attacker)
			}
			other := c.client(t)
			defer other.open("stream").close()
			c.choose = func() int { return 0 }
			for i, attacker := range attackers {
				c.address = fmt.Sprintf("[2001:db8::%d]:1", i+1)
				end, status := attacker.stall(attacker.batch(1, strings.Repeat(" ", 100<<10)))
				defer end()
				if i >= 3 {
					assert.Equal(t, http.StatusServiceUnavailable, <-status)
				}
			}
			c.address = "192.0.2.1:1"
			other.up(event(1) + strings.Repeat(" ", 50<<10))
		})
	}
}

// TestUp_ArrivedBytesOfOneConnectionAreBounded sends bodies for one connection from many addresses to a node that does not
// have it.
func TestUp_ArrivedBytesOfOneConnectionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, 2, router.Options{}, func(*router.Router) {})
		c.address = "192.0.2.1:1"
		c.choose = func() int { return 1 }
		attacker, other := c.client(t), c.client(t)
		defer attacker.open("stream").close()
		defer other.open("stream").close()
		c.choose = func() int { return 0 }
		refused := 0
		for i := range 10 {
			c.address = fmt.Sprintf("192.0.2.%d:1", i)
			end, status := attacker.stallOf(570<<10, attacker.batch(1, strings.Repeat(" ", 300<<10)))
			defer end()
			select {
			case got := <-status:
				assert.Equal(t, http.StatusServiceUnavailable, got)
				refused++
			default:
			}
		}
		assert.Equal(t, 6, refused)
		other.up(event(1) + strings.Repeat(" ", 50<<10))
	})
}

// TestPeers_BodiesThatArriveSlowlyOccupyNoQuestion has more of them than requests of which other nodes may be asked.
func TestPeers_BodiesThatArriveSlowlyOccupyNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodesWith(t, 2, router.Options{}, &router.FallbackOptions{MaxConns: 8}, func(*router.Router) {})
		c.address = "192.0.2.1:1"
		c.choose = func() int { return 1 }
		client := c.client(t)
		defer client.open("stream").close()
		c.choose = func() int { return 0 }
		for range 20 {
			end, _ := client.stall(client.batch(1))
			defer end()
		}
		assert.Equal(t, http.StatusNoContent, client.acknowledge())
	})
}

// TestUp_SlowBodyEndsItsHTTPConnection checks that the socket of a body that has not arrived is closed.
func TestUp_SlowBodyEndsItsHTTPConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := recordingRouter(&router.Options{})
		server, dial := serveSockets(t, &http.Server{Handler: r.HTTPFallback(nil)})
		client := clientOf(t, server.Do)
		defer client.open("stream").close()
		conn := dial()
		defer func() { _ = conn.Close() }()
		start := time.Now()
		_ = must(fmt.Fprintf(conn, "POST /?up HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000\r\n\r\n%s", client.batch(1)))
		in := bufio.NewReader(conn)
		resp := must(http.ReadResponse(in, nil))
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		_ = resp.Body.Close()
		_, err := in.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}
