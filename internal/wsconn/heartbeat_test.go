package wsconn_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestConnRTT_IsFromPingToTheArrivalOfItsPong reads on a goroutine, which is busy with each message for 3 seconds. The
// peer is pinged after 20 seconds.
func TestConnRTT_IsFromPingToTheArrivalOfItsPong(t *testing.T) {
	answer, message, clientPing := clientFrame(fin|pong, ""), clientFrame(fin|text, "x"), clientFrame(fin|ping, "x")
	type write struct {
		at     time.Duration
		frames [][]byte // in one chunk
	}
	at := func(seconds float64, frames ...[]byte) write {
		return write{time.Duration(seconds * float64(time.Second)), frames}
	}
	for name, tt := range map[string]struct {
		writes []write
		want   time.Duration
	}{
		"alone":                                 {[]write{at(22, answer)}, 2 * time.Second},
		"behind a message in one chunk":         {[]write{at(22, message, answer)}, 2 * time.Second},
		"behind a message and a ping":           {[]write{at(22, message, clientPing, answer)}, 2 * time.Second},
		"while a handler keeps it from reading": {[]write{at(21, message), at(22, answer)}, 0},
		"after such a handler":                  {[]write{at(21, message), at(25, answer)}, 0},
		"at the next ping":                      {[]write{at(21, message), at(22, answer), at(46, answer)}, 2 * time.Second},
		"not asked for, with a payload":         {[]write{at(22, clientFrame(fin|pong, "x"))}, 0},
		"not asked for, before the ping":        {[]write{at(19, answer)}, 0},
		"second of one chunk":                   {[]write{at(22, answer, answer)}, 2 * time.Second},
		"in a chunk that the ping has followed": {[]write{at(18, message, answer)}, 0},
		"repeated":                              {[]write{at(22, answer), at(23, answer)}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := pipeRTT(t)
				go func() {
					for {
						if _, _, err := readServerFrame(client.r); err != nil {
							return
						}
					}
				}()
				begun := time.Now()
				for _, w := range tt.writes {
					time.Sleep(time.Until(begun.Add(w.at)))
					go client.send(slices.Concat(w.frames...)) // it waits until the server reads
				}
				time.Sleep(5 * time.Second)
				assert.Equal(t, tt.want, c.RTT())
			})
		})
	}
}

// TestConnRTT_IgnoresPongBeforeThePingIsWritten lets the ping wait behind a message that the client does not read.
func TestConnRTT_IgnoresPongBeforeThePingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := pipeRTT(t)
		require.NoError(t, send(c, "x"))
		time.Sleep(22 * time.Second)
		client.send(clientFrame(fin|pong, ""))
		synctest.Wait()
		assert.Zero(t, c.RTT())
		client.next()
		first, _ := client.next()
		assert.Equal(t, byte(fin|ping), first)
	})
}

// pipeRTT connects a client to a server in virtual time, whose reading goroutine is busy with each message for 3 seconds.
func pipeRTT(t *testing.T) (*wsconn.Conn, *rawClient) {
	client, server := net.Pipe()
	opts := options()
	opts.PingInterval, opts.PongTimeout, opts.WriteTimeout = 20*time.Second, 15*time.Second, time.Minute
	accepted := make(chan *wsconn.Conn)
	go func() {
		c, err := wsconn.Accept(hijackable{httptest.NewRecorder(), server}, upgradeRequest(), "", opts, newHandler())
		assert.NoError(t, err)
		accepted <- c
	}()
	peer := &rawClient{client, bufio.NewReader(client), t}
	_, err := http.ReadResponse(peer.r, nil)
	require.NoError(t, err)
	c, ended := <-accepted, make(chan struct{})
	go func() {
		defer close(ended)
		defer c.Release()
		for {
			msg, err := c.Read(unlimited)
			if err != nil {
				return
			}
			if msg.Buffer != nil {
				msg.Release()
				time.Sleep(3 * time.Second)
			}
		}
	}()
	t.Cleanup(func() {
		c.Abort()
		_ = client.Close()
		<-ended
	})
	return c, peer
}
