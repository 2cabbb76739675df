package router_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

var updateTranscripts = flag.Bool("transcript.update", false,
	"rewrite testdata/transcripts; every changed line is a change of the protocol")

// TestTranscripts repeats the commands in testdata/transcripts, and compares every byte that clients receive with what
// the files say. A file has scenarios, which begin with "== name". These lines are not commands, but what follows from
// the command above them:
//
//	< NAME TEXT        a client receives a message; <5s> is the virtual time since the scenario began
//	x NAME CODE REASON the server has closed a connection, for the command closed
//	= ...              an operation of the server has returned, or the answer to the command count
//	! ...              a report of the server, after the command reports
//
// Of a text in a command, <x*300> is 300 letters x. A command behind "~" has results in any order.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "transcripts", "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		scenarios := strings.Split(string(text), "\n== ")
		for i, want := range scenarios[1:] {
			name, lines, _ := strings.Cut(want, "\n")
			runSynctest(t, strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+name, func(t *testing.T) {
				got := name + "\n" + newTranscript(t).run(lines)
				scenarios[i+1] = got
				if !*updateTranscripts {
					assert.Equal(t, strings.Split(want, "\n"), strings.Split(got, "\n"))
				}
			})
		}
		if *updateTranscripts {
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(scenarios, "\n== ")), 0o600))
		}
	}
}

// A transcript runs the commands of a scenario.
type transcript struct {
	t       *testing.T
	app     *transcriptApp
	opts    router.Options
	start   time.Time
	names   []string // of the connections, in the order in which they were opened
	clients map[string]*routertest.Conn
	conns   map[string]*router.Conn
	results recorder[string] // that are not in text yet
	cancels map[string]context.CancelFunc
	text    strings.Builder
}

func newTranscript(t *testing.T) *transcript {
	s := &transcript{
		t: t, start: time.Now(),
		clients: map[string]*routertest.Conn{}, conns: map[string]*router.Conn{}, cancels: map[string]context.CancelFunc{},
	}
	s.opts = router.Options{
		Limits:   router.Limits{MaxMessageBytes: 300, Concurrency: 2},
		Timeouts: router.Timeouts{Call: 10 * time.Second},
	}
	return s
}

// run returns the commands with their results.
func (s *transcript) run(lines string) string {
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		if regexp.MustCompile(`^[<x=!] `).MatchString(line) {
			continue
		}
		s.text.WriteString(line + "\n")
		command, sorted := strings.CutPrefix(line, "~ ")
		if line != "" && line[0] != '#' {
			s.command(command)
			s.receive(sorted)
		}
	}
	return s.text.String()
}

var randomDelay = regexp.MustCompile(`("retryAfterMs":)\d+`)

var repetition = regexp.MustCompile(`<([^<>]+)\*(\d+)>`)

// command runs the command in a line.
func (s *transcript) command(line string) {
	word, rest, _ := strings.Cut(line, " ")
	name, text, _ := strings.Cut(rest, " ")
	text = repetition.ReplaceAllStringFunc(text, func(found string) string {
		parts := repetition.FindStringSubmatch(found)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
	switch word {
	case "options":
		s.options(rest)
		return
	case "reports":
		s.opts.OnError = func(e router.ErrorReport) { s.result("! error %s %v", e.Type, e.Err) }
		s.opts.OnLimitExceeded = func(l router.LimitExceeded) { s.result("! limit %s %s", l.Type, l.Error()) }
		return
	}
	if s.app == nil {
		s.app = newTranscriptApp(s.opts)
		s.app.Observe(s.observe)
		s.t.Cleanup(s.app.release)
	}
	switch word {
	case "open":
		s.open(name, text)
	case ">":
		s.clients[name].SendText(text)
	case "binary":
		s.clients[name].SendBinary([]byte(strings.ReplaceAll(text, "\ufffd", "\xff")))
	case "repeat": // repeat N NAME TEXT, with the number instead of {n}
		n, err := strconv.Atoi(name)
		require.NoError(s.t, err, line)
		name, text, _ = strings.Cut(text, " ")
		go func() {
			for i := range n {
				s.clients[name].SendText(strings.ReplaceAll(text, "{n}", fmt.Sprint(i)))
			}
		}()
	case "sleep":
		time.Sleep(s.duration(name))
	case "release":
		s.app.release()
	case "limit": // messages of a type
		s.app.limited.Store(&name)
	case "count":
		s.result("= %d charged, %d handled, %d running", s.app.charged.Load(), s.app.handled.Load(), s.app.running.Load())
	default:
		s.operation(word, name, text)
	}
}

// operation runs a command that concerns a connection, or the server.
func (s *transcript) operation(word, name, text string) {
	switch word {
	case "pause":
		s.clients[name].Pause()
	case "resume":
		s.clients[name].Resume()
	case "abort":
		s.clients[name].Abort()
	case "freeze":
		s.clients[name].Freeze()
	case "close":
		s.clients[name].Close()
	case "closed":
		end := s.clients[name].Closed()
		s.receive(false)
		reason := end.Reason
		if end.Code == router.StatusServiceRestart {
			reason = randomDelay.ReplaceAllString(reason, "${1}<random>")
		}
		s.result("x %s %d %s", name, end.Code, reason)
	case "publish":
		require.NoError(s.t, s.app.Publish(name, plainNote{text}))
	case "send":
		_, err := s.app.SendToUser("", name, plainNote{text})
		require.NoError(s.t, err)
	case "disconnect":
		_, err := s.app.DisconnectUser("", name, 4003, text)
		require.NoError(s.t, err)
	case "shutdown":
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.duration(name))
			defer cancel()
			start := time.Now()
			err := s.app.Shutdown(ctx)
			s.result("= shutdown %v %v", time.Since(start), err)
		}()
	case "call": // call NAME ID [TIMEOUT]
		s.call(name, text)
	case "cancel":
		s.cancels[name]()
	default:
		s.t.Fatalf("unknown command %q", word)
	}
}

// options sets the options that a scenario may have.
func (s *transcript) options(text string) {
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "concurrency":
			s.opts.Limits.Concurrency = n
		case "bytes":
			s.opts.Limits.MaxMessageBytes = int64(n)
		case "call":
			s.opts.Timeouts.Call = s.duration(value)
		case "action":
			s.opts.LimitAction = map[string]router.LimitAction{"close": router.ActionClose, "custom": router.ActionCustom}[value]
		case "patient":
			s.opts.Timeouts.Message, s.opts.Timeouts.Ping = patient.Message, patient.Ping
		default:
			s.t.Fatalf("unknown option %q", key)
		}
	}
}

func (s *transcript) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

// open connects a client of a user, which is its name unless the command says otherwise.
func (s *transcript) open(name, user string) {
	if user == "" {
		user = name
	}
	s.clients[name], s.conns[name] = dialUser(s.t, s.app.Router, user)
	s.names = append(s.names, name)
}

// call calls a client.
func (s *transcript) call(name, text string) {
	id, timeout, limited := strings.Cut(text, " ")
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancels[id] = cancel
	go func() {
		if limited {
			ctx, cancel = context.WithTimeout(ctx, s.duration(timeout))
		}
		defer cancel()
		start := time.Now()
		reply, err := router.Call[Confirmed](ctx, s.conns[name], Confirm{id})
		result := fmt.Sprintf("reply %v", reply)
		if err != nil {
			result = fmt.Sprintf("%s: %v", errors.CodeOf(err), err)
			if e, ok := errors.AsType[*errors.Error](err); ok {
				result += fmt.Sprintf("; details %v, retry after %v", e.Details, e.RetryAfter)
			}
		}
		s.result("= %s %v %s", id, time.Since(start), result)
	}()
}

// result records a line that is not a message to a client.
func (s *transcript) result(format string, args ...any) {
	s.results.add(abbreviate(fmt.Sprintf(format, args...)))
}

// observe reports messages that are refused.
func (s *transcript) observe(e observe.Event) {
	switch e.Kind {
	case observe.Started:
		s.app.running.Add(1)
	case observe.Finished:
		s.app.running.Add(-1)
	case observe.Refused:
		if s.opts.OnError != nil {
			s.result("! refused %s %s in %s %s", e.Type, e.Code, e.Reason, e.Limit)
		}
	}
}

// receive records what has arrived when the router has nothing left to do.
func (s *transcript) receive(sorted bool) {
	synctest.Wait()
	var lines []string
	for _, name := range s.names {
		for s.clients[name].Pending() > 0 {
			frame := s.clients[name].Next()
			lines = append(lines, fmt.Sprintf("< %s %s", name, abbreviate(s.relative(frame.Text))))
		}
	}
	if lines = append(lines, s.results.take()...); sorted {
		slices.Sort(lines)
	}
	for _, line := range lines {
		s.text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

var timestamps = regexp.MustCompile(`("timestamp":|"ts":)(\d+)`)

// relative replaces the times in a message.
func (s *transcript) relative(text string) string {
	return timestamps.ReplaceAllStringFunc(text, func(found string) string {
		parts := timestamps.FindStringSubmatch(found)
		ms, err := strconv.ParseInt(parts[2], 10, 64)
		require.NoError(s.t, err)
		return fmt.Sprintf("%s<%v>", parts[1], time.UnixMilli(ms).Sub(s.start))
	})
}

var ids = regexp.MustCompile(`\b[A-Z0-9]{26}\b`)

// abbreviate replaces IDs, which are random, and letters that are repeated often.
func abbreviate(text string) string {
	text = ids.ReplaceAllString(text, "<id>")
	for _, letter := range []string{"x", "é"} {
		text = regexp.MustCompile(letter+`{40,}`).ReplaceAllStringFunc(text, func(found string) string {
			return fmt.Sprintf("<%s*%d>", letter, strings.Count(found, letter))
		})
	}
	return text
}
