package soak_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

// Messages of the chat.
type (
	joinRoom struct {
		Room string `json:"room"`
	}
	roomJoined struct {
		Room string `json:"room"`
	}
	say struct {
		Room string `json:"room"`
		Text string `json:"text"`
	}
	stored struct {
		ID string `json:"id"`
	}
	said struct {
		Text string `json:"text"`
	}
	search struct {
		Room  string `json:"room"`
		Query string `json:"query"`
	}
	found struct {
		Matches []said `json:"matches"`
	}
)

func (joinRoom) MessageType() string   { return "JOIN_ROOM" }
func (roomJoined) MessageType() string { return "ROOM_JOINED" }
func (say) MessageType() string        { return "SAY" }
func (stored) MessageType() string     { return "STORED" }
func (said) MessageType() string       { return "SAID" }
func (search) MessageType() string     { return "SEARCH_HISTORY" }
func (found) MessageType() string      { return "HISTORY_FOUND" }

// counters count what clients see.
type counters struct{ stored, failed, received, refused, dropped atomic.Int64 }

type counts struct{ Stored, Failed, Received, Refused, Dropped int64 }

func (c *counters) snapshot() counts {
	return counts{c.stored.Load(), c.failed.Load(), c.received.Load(), c.refused.Load(), c.dropped.Load()}
}

const (
	talkers = 200
	rooms   = 20
)

// startLoad runs clients until ctx ends: those that talk, with the client library; those that come and go without a
// close frame; those that do not read; and those that send faster than the limit, or nonsense.
func (s *soak) startLoad(ctx context.Context, load *sync.WaitGroup) *counters {
	c := new(counters)
	all := []string{url(s.nodes[0]), url(s.nodes[1]), url(s.mortal)}
	for n := range talkers {
		load.Go(func() { c.talk(ctx, all[n%len(all)], n) })
	}
	for n := range 8 {
		load.Go(func() { c.repeat(ctx, func() { c.comeAndGo(ctx, all[n%len(all)], n) }) })
		load.Go(func() { c.repeat(ctx, func() { c.neverRead(ctx, all[n%len(all)], n) }) })
	}
	for _, to := range all {
		load.Go(func() { c.repeat(ctx, func() { c.flood(ctx, to) }) })
	}
	return c
}

// repeat pauses between the calls, as clients do that cannot connect.
func (c *counters) repeat(ctx context.Context, f func()) {
	for ctx.Err() == nil {
		f()
		sleep(ctx, 200*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func room(n int) string { return fmt.Sprint("room-", n%rooms) }

// talk joins a room, says something about once per two seconds, and searches sometimes.
func (c *counters) talk(ctx context.Context, to string, n int) {
	cl := client.New(to, &client.Options{
		Header: http.Header{"Authorization": {fmt.Sprint("Bearer talker-", n)}}, Pacing: true, CallTimeout: 10 * time.Second,
		Logger: slog.New(slog.DiscardHandler), OnError: func(string, error) {},
	})
	defer cl.Close(context.Background()) //nolint:errcheck // the load ends
	client.On(cl, func(said, *client.Received) { c.received.Add(1) })
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	joined := false
	for ctx.Err() == nil {
		var err error
		switch {
		case !joined:
			_, err = client.Call[roomJoined](ctx, cl, joinRoom{room(n)})
			joined = err == nil
		case rng.IntN(20) == 0:
			_, err = client.Call[found](ctx, cl, search{room(n), "7"})
		default:
			if _, err = client.Call[stored](ctx, cl, say{room(n), fmt.Sprint("message ", rng.IntN(100))}); err == nil {
				c.stored.Add(1)
			}
		}
		if err != nil {
			c.failed.Add(1)
			joined = joined && errors.CodeOf(err) != errors.FailedPrecondition && errors.CodeOf(err) != errors.PermissionDenied
		}
		sleep(ctx, time.Duration(1000+rng.IntN(2000))*time.Millisecond)
	}
}

// dial returns a connection that has asked to join a room.
func dial(ctx context.Context, to, user string, n int) (*websocket.Conn, error) {
	ws, _, err := websocket.Dial(ctx, to+"?access_token="+user, nil)
	if err != nil {
		return nil, err
	}
	join := fmt.Sprintf(`{"type":"JOIN_ROOM","meta":{"correlationId":"1"},"payload":{"room":%q}}`, room(n))
	if err := ws.Write(ctx, websocket.MessageText, []byte(join)); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	return ws, nil
}

// comeAndGo ends the TCP connection after a moment.
func (c *counters) comeAndGo(ctx context.Context, to string, n int) {
	ws, err := dial(ctx, to, fmt.Sprint("guest-", rand.IntN(1000)), n)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	read, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Millisecond)
	defer cancel()
	for err == nil {
		_, _, err = ws.Read(read)
	}
	c.dropped.Add(1)
}

// neverRead lets messages wait for it for up to 30 seconds.
func (c *counters) neverRead(ctx context.Context, to string, n int) {
	ws, err := dial(ctx, to, fmt.Sprint("sleeper-", n), n)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	sleep(ctx, time.Duration(rand.IntN(30))*time.Second)
	c.dropped.Add(1)
}

// flood exceeds the limit, and sends invalid messages.
func (c *counters) flood(ctx context.Context, to string) {
	ws, err := dial(ctx, to, "flood", 0)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	go func() { // ends with the connection
		for {
			_, r, err := ws.Reader(ctx)
			if err != nil {
				return
			}
			if text, err := io.ReadAll(r); err == nil && isError(text) {
				c.refused.Add(1)
			}
		}
	}()
	messages := []string{`{"type":"WHO","payload":{"room":"room-0"}}`, `{"type":"DROP_TABLES"}`, `{"type":"SAY","payload":7}`, `garbage`}
	for n := range 2000 {
		if ws.Write(ctx, websocket.MessageText, []byte(messages[n%len(messages)])) != nil {
			return
		}
		sleep(ctx, 5*time.Millisecond)
	}
}
