package fallback_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
)

// The stories of testdata/stories say what a server answers, by docs/protocol.md, section 15. A line has steps, which semicolons
// separate. "options" configures both nodes; "node" and "address" say where the next requests go to and come from. "post" is a
// request with a body, and the status of its answer; "body" is what the last one with the status 200 contains. "open" and "down"
// are requests whose responses have events, and "event" is the next one: its ID, its name if it is no message, and what its data
// contains. "stall" begins an up: how many bytes of messages arrive, of which length of the body, and the status if it is
// answered. "as" names clients, each of which has one connection at a time, and "3x" repeats a step.
//
// In bodies, SECRET is that of the connection, E1 an event with the number 1, // a line break. "for" repeats a story: $1 and
// so on are the words of each alternative, and $ is the whole one.

// A story is a client of two nodes, and what has happened.
type story struct {
	*client
	*nodes

	t       *testing.T
	node    int // to which requests go
	events  *sseReader
	body    string
	began   time.Time
	handled *recorder[int]
	ended   *recorder[string]
	others  map[string]*client
}

func TestFallback_Connections(t *testing.T) { runStories(t, "connections") }
func TestFallback_Limits(t *testing.T)      { runStories(t, "limits") }
func TestFallback_Requests(t *testing.T)    { runStories(t, "requests") }

func runStories(t *testing.T, file string) {
	text, err := os.ReadFile("testdata/stories/" + file + ".txt") //nolint:gosec // a test file
	require.NoError(t, err)
	for _, one := range strings.Split(string(text), "\n== ")[1:] {
		title, steps, _ := strings.Cut(one, "\n")
		alternatives := []string{""}
		if list, ok := strings.CutPrefix(steps, "for "); ok {
			list, steps, _ = strings.Cut(list, "\n")
			alternatives = strings.Split(list, " |")
		}
		for _, alternative := range alternatives {
			runSynctest(t, title+", "+alternative, func(t *testing.T) { runStory(t, steps, strings.TrimSpace(alternative)) })
		}
	}
}

func runStory(t *testing.T, steps, alternative string) {
	replace := []string{"$", alternative}
	for i, word := range strings.Fields(alternative) {
		replace = append([]string{fmt.Sprint("$", i+1), word}, replace...)
	}
	s := &story{t: t, handled: &recorder[int]{}, ended: &recorder[string]{}, others: map[string]*client{}}
	for line := range strings.Lines(strings.NewReplacer(replace...).Replace(strings.TrimSpace(steps))) {
		line, _, _ = strings.Cut(line, "  #")
		for step := range strings.SplitSeq(line, ";") {
			word, arguments, _ := strings.Cut(strings.TrimSpace(step), " ")
			times := 1
			if count, err := strconv.Atoi(strings.TrimSuffix(word, "x")); err == nil {
				times = count
				word, arguments, _ = strings.Cut(arguments, " ")
			}
			if word != "options" && s.nodes == nil {
				s.start("")
			}
			for range times {
				s.step(word, arguments)
				if t.Failed() {
					t.Fatal("step:", step)
				}
			}
		}
	}
}

// start starts the nodes with options.
func (s *story) start(options string) {
	opts, fallback := router.Options{}, &router.FallbackOptions{}
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "max-conns":
			fallback.MaxConns = n
		case "measure-only":
			fallback.MeasureOnly = true
		case "conns":
			opts.Limits.Conns = n
		case "conns-per-ip":
			opts.Limits.ConnsPerIP = n
		case "handshakes":
			opts.Limits.HandshakesPerIP = router.Rate{PerSecond: 1, Burst: n}
		case "inbound":
			opts.Limits.InboundBytes = int64(n)
		case "authenticate":
			opts.OnError = func(router.ErrorReport) {}
			opts.Authenticate = func(*http.Request) (router.Identity, error) {
				if value == "panic" {
					panic("a mistake")
				}
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "log in first")
			}
		case "ping":
			opts.Timeouts.Ping = must(time.ParseDuration(value))
		default:
			s.t.Fatal("no option:", name)
		}
	}
	opts.OnClose = func(_ *router.Conn, end router.CloseError) { s.ended.add(fmt.Sprint(end.Code)) }
	s.nodes = newNodesWith(s.t, 2, opts, fallback, func(r *router.Router) {
		router.On(r, func(_ *router.Context, m Echo) error {
			s.handled.add(m.N)
			return nil
		})
	})
	s.choose = func() int { return s.node }
	s.client = s.nodes.client(s.t)
}

// conn returns the only open connection.
func (s *story) conn() *router.Conn {
	synctest.Wait()
	conns := append(collect(s.routers[0]), collect(s.routers[1])...)
	require.Len(s.t, conns, 1)
	return conns[0]
}

func (s *story) step(step, arguments string) {
	s.t.Helper()
	first, rest, _ := strings.Cut(arguments, " ")
	n, _ := strconv.Atoi(first)
	switch step {
	case "options":
		s.start(arguments)
	case "node":
		s.node = n
	case "address":
		s.address = arguments
	case "wait":
		time.Sleep(must(time.ParseDuration(arguments)))
		synctest.Wait()
	case "clock":
		s.began = time.Now()
	case "took":
		assert.Equal(s.t, must(time.ParseDuration(arguments)), time.Since(s.began))
	case "fail", "deaf":
		s.network.Update(s.routers[0].NodeID(), func(f *enginetest.Faults) { f.Lose, f.Deaf = step == "fail", true })
		if step == "fail" {
			time.Sleep(time.Minute)
		}
	case "shutdown":
		_ = s.routers[0].Shutdown(context.Background())
		time.Sleep(time.Second)
	case "send":
		for number := range strings.FieldsSeq(arguments) {
			require.NoError(s.t, s.conn().Send(Echo{N: must(strconv.Atoi(number))}))
		}
		synctest.Wait()
	case "close":
		s.conn().Close(router.StatusCode(n), rest)
		synctest.Wait()
	case "conns":
		assert.Len(s.t, append(collect(s.routers[0]), collect(s.routers[1])...), n)
	case "ip":
		assert.Equal(s.t, arguments, s.conn().IP().String())
	case "handled", "ended":
		synctest.Wait()
		got := map[string]any{"handled": s.handled.all(), "ended": s.ended.all()}[step]
		assert.Equal(s.t, "["+arguments+"]", fmt.Sprint(got))
	default:
		s.requestStep(step, arguments)
	}
}

var lineBreak = regexp.MustCompile(" ?// ?")

// requestStep has the steps that are requests, and what they are answered.
func (s *story) requestStep(step, arguments string) {
	s.t.Helper()
	first, rest, _ := strings.Cut(arguments, " ")
	n, _ := strconv.Atoi(first)
	switch step {
	case "open":
		s.seq, s.ack = 0, 0
		s.events = s.open(first)
		if first == "poll" {
			s.events.close()
		}
		s.t.Cleanup(s.events.close)
	case "as":
		if s.others[first] == nil {
			s.others[first] = s.nodes.client(s.t)
		}
		s.client = s.others[first]
	case "origin":
		s.header.Set("Origin", first)
	case "forge":
		at := map[string]int{"node": 0, "connection": len(s.secret) - 1}[first]
		s.secret = s.secret[:at] + otherThan(s.secret[at]) + s.secret[at+1:]
	case "stall":
		length, _, _ := strings.Cut(rest, " ")
		s.stall(n, int64(must(strconv.Atoi(length))), strings.TrimSpace(strings.TrimPrefix(rest, length)))
	case "leave":
		s.events.close()
	case "full":
		s.refusedSlot()
	case "get":
		resp := must(s.client.do(must(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url, nil))))
		require.NoError(s.t, resp.Body.Close())
		assert.Equal(s.t, []any{n, rest}, []any{resp.StatusCode, resp.Header.Get("Penstock-Fallback")})
		assert.Equal(s.t, n == http.StatusServiceUnavailable, resp.Header.Get("Retry-After") == "1")
	case "post":
		status, body, _ := strings.Cut(rest, " ")
		replace := []string{"SECRET", s.secret, "SPACES", strings.Repeat(" ", 2000), "PADDING", strings.Repeat(" ", 50<<10)}
		for i := range 10 {
			replace = append(replace, fmt.Sprint("E", i), event(i))
		}
		body = strings.NewReplacer(replace...).Replace(lineBreak.ReplaceAllString(body, "\n"))
		resp := s.post(first, body)
		s.body = strings.TrimSpace(string(must(io.ReadAll(resp.Body))))
		require.NoError(s.t, resp.Body.Close())
		assert.Equal(s.t, status, fmt.Sprint(resp.StatusCode))
		assert.True(s.t, status == "200" || s.body == "", s.body)
	case "comment":
		assert.Equal(s.t, ":\n", must(s.events.lines.ReadString('\n')))
		assert.Equal(s.t, "\n", must(s.events.lines.ReadString('\n')))
	case "body":
		assert.True(s.t, s.body == arguments || arguments != "" && strings.Contains(s.body, arguments), s.body)
	case "ack":
		s.ack = uint64(n)
	case "acknowledge":
		assert.Equal(s.t, n, s.acknowledge())
	case "down":
		resp := s.down(first)
		s.t.Cleanup(func() { _ = resp.Body.Close() })
		s.events = readEvents(resp)
		assert.Equal(s.t, rest, fmt.Sprint(resp.StatusCode))
	case "event":
		e := must(s.events.next())
		want := strings.TrimPrefix(rest, e.name)
		assert.Equal(s.t, n, int(e.id))
		assert.True(s.t, e.name == "" || want != rest, e.name)
		assert.Contains(s.t, e.data, strings.TrimSpace(want))
	case "eof":
		assert.Equal(s.t, io.EOF, errorOf(s.events.next()))
	default:
		s.t.Fatal("no step:", step)
	}
}

// stall sends the beginning of an up of a length, with so many bytes of a message, until the story ends. It returns when the
// server waits for the rest, or has answered with a status, which may be "any".
func (s *story) stall(bytes int, length int64, status string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	rest, release := io.Pipe()
	body := io.MultiReader(strings.NewReader(s.batch(1, strings.Repeat(" ", bytes))), rest)
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, s.url+"?up", body))
	req.ContentLength = length
	answer, do := "", s.client.do
	go func() {
		if resp, err := do(req); err == nil {
			answer = fmt.Sprint(resp.StatusCode)
			_ = resp.Body.Close()
		}
	}()
	synctest.Wait()
	assert.True(s.t, status == "any" || status == answer, answer)
	s.t.Cleanup(func() {
		cancel()
		_ = release.Close()
		synctest.Wait()
	})
}
