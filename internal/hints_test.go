package internal_test

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/declared"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/hints"
	"github.com/penstock-go/penstock/internal/protocol"
)

type note struct{}

func (note) MessageType() string { return "NOTE" }

type broken struct{}

func (broken) MessageType() string { panic("no type") }

// A line is what a Write received.
type line struct {
	level        slog.Level
	text         string
	key, subject string
	remedy       string
}

// collect returns hints, and the lines that they write.
func collect(d *declared.Messages) (h *hints.Hints, lines *[]line) {
	lines = new([]line)
	return hints.New(d, func(level slog.Level, text string, attrs ...slog.Attr) {
		*lines = append(*lines, line{level, text, attrs[0].Key, attrs[0].Value.String(), attrs[1].Value.String()})
	}), lines
}

func request(header ...string) *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func refusal(code errors.Code, message string) *failure.Failure {
	return failure.Of(&errors.Error{Code: code, Message: message})
}

// TestHints_AreWrittenOncePerCause gives each hint twice.
func TestHints_AreWrittenOncePerCause(t *testing.T) {
	for name, tt := range map[string]struct {
		give func(h *hints.Hints)
		want line // with a part of the remedy
	}{
		"a page of another server": {
			func(h *hints.Hints) { h.Origin(request("Origin", "http://a.test")) },
			line{0, "handshake refused: the page is of another origin", "origin", "http://a.test", `Options.Origins must contain "http://a.test"`},
		},
		"a page from a file": {
			func(h *hints.Hints) { h.Origin(request("Origin", "null")) },
			line{0, "handshake refused: the page is of another origin", "origin", "null", "load it from a server"},
		},
		"a page from a file, in an application that embeds a browser": {
			func(h *hints.Hints) { h.Origin(request("Origin", "file://")) },
			line{0, "handshake refused: the page is of another origin", "origin", "file://", "load it from a server"},
		},
		"two origins": {
			func(h *hints.Hints) { h.Origin(request("Origin", "http://a.test", "Origin", "http://b.test")) },
			line{0, "handshake refused: the page is of another origin", "origin", "http://a.test", "several Origin headers"},
		},
		"no WebSocket": {
			func(h *hints.Hints) { h.Handshake(request(), refusal(errors.InvalidArgument, "no")) },
			line{0, "handshake refused: the request does not ask for a WebSocket", "request", "GET HTTP/1.1", "new WebSocket("},
		},
		"an invalid handshake": {
			func(h *hints.Hints) {
				h.Handshake(request("Upgrade", "WebSocket"), refusal(errors.InvalidArgument, "the key is too short"))
			},
			line{0, "handshake refused: the key is too short", "request", "GET HTTP/1.1", "RFC 6455"},
		},
		"no Hijacker": {
			func(h *hints.Hints) {
				h.Handshake(request("Upgrade", "websocket"), refusal(errors.Unimplemented, "no"))
			},
			line{0, "handshake refused: the connection cannot be taken over", "request", "GET HTTP/1.1", "http.Hijacker"},
		},
		"no credentials": {
			func(h *hints.Hints) { h.Authentication(&failure.Failure{Text: "UNAUTHENTICATED: no cookie"}) },
			line{0, "handshake refused: Options.Authenticate returned an error", "error", "UNAUTHENTICATED: no cookie", "router.Token"},
		},
		"a limit": {
			func(h *hints.Hints) { h.Limit("connections") },
			line{0, "handshake refused: a limit is exceeded", "limit", "connections", "Options.TrustedProxies"},
		},
		"a topic without a pattern": {
			func(h *hints.Hints) { h.NoPattern("news") },
			line{0, "subscription refused: no pattern matches the topic", "topic", "news", `router.Topic(r, "news"`},
		},
		"a pattern without Authorize": {
			func(h *hints.Hints) { h.NoAuthorize("room/{id}", "main.go:7") },
			line{0, "subscription refused: the pattern has no Authorize", "topic", "room/{id}", "registered at main.go:7"},
		},
		"a pattern without presence": {
			func(h *hints.Hints) { h.NoPresence("room/{id}", "main.go:7") },
			line{0, "presence requested: the pattern has none", "topic", "room/{id}", "set TopicOptions.Presence of the pattern registered at main.go:7"},
		},
		"a message": {
			func(h *hints.Hints) { h.Sent(note{}) },
			line{0, "message sent that is not declared", "type", "NOTE", "router.DeclareMessage[internal_test.note](r)"},
		},
		"a reply": {
			func(h *hints.Hints) { h.Reply("LIST", note{}, nil, "") },
			line{0, "reply sent that is not declared", "type", "LIST", "set RouteDoc.Reply of the stream to internal_test.note{}"},
		},
		"another reply": {
			func(h *hints.Hints) { h.Reply("LIST", note{}, reflect.TypeFor[broken](), "OTHER") },
			line{0, "reply sent that differs from the declared one", "type", "LIST", "the contract says internal_test.broken, the reply is a internal_test.note"},
		},
		"progress": {
			func(h *hints.Hints) { h.Progress("LIST", 1) },
			line{0, "progress sent that is not declared", "type", "LIST", "set RouteDoc.Progress of the route to a int"},
		},
		"a call": {
			func(h *hints.Hints) { h.Call(note{}, reflect.TypeFor[broken]()) },
			line{0, "client called with a message that is not declared", "type", "NOTE", "router.DeclareCall[internal_test.note, internal_test.broken](r)"},
		},
		"a thread": {
			func(h *hints.Hints) { h.LockedGoroutine("SAY") },
			line{0, "handler left its goroutine locked to an OS thread", "type", "SAY", "runtime.UnlockOSThread"},
		},
		"an error": {
			func(h *hints.Hints) { h.Error("ASK", "the code FOO is not declared") },
			line{slog.LevelError, "error answered that differs from the declared ones", "type", "ASK", "the code FOO is not declared; RouteDoc.Errors"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, lines := collect(new(declared.Messages))
			tt.give(h)
			tt.give(h)
			require.Len(t, *lines, 1)
			got := (*lines)[0]
			assert.Contains(t, got.remedy, tt.want.remedy)
			tt.want.level, tt.want.remedy = cmp.Or(tt.want.level, slog.LevelWarn), got.remedy
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestHints_SayNothingAboutWhatIsDeclared has also messages of the protocol and those without a type.
func TestHints_SayNothingAboutWhatIsDeclared(t *testing.T) {
	var d declared.Messages
	m := declared.Message{Name: "NOTE", Type: reflect.TypeFor[note]()}
	d.AddSent(m)
	d.AddCall(declared.Call{Message: m, Reply: m})
	h, lines := collect(&d)
	h.Sent(note{})
	h.Sent(broken{})
	h.Sent(protocol.Unsubscribed{})
	h.Sent(nil)
	h.Reply("LIST", note{}, m.Type, "NOTE")
	h.Reply("LIST", broken{}, m.Type, "NOTE")
	h.Reply("LIST", nil, m.Type, "NOTE")
	h.Call(note{}, m.Type)
	h.Call(broken{}, m.Type)
	assert.Empty(t, *lines)
}

// TestHints_WrongContractsAreErrors has an application that declares one message, and does not keep
// to it.
func TestHints_WrongContractsAreErrors(t *testing.T) {
	var d declared.Messages
	d.AddSent(declared.Message{Name: "OTHER", Type: reflect.TypeFor[int]()})
	h, lines := collect(&d)
	h.Sent(note{})
	h.Progress("LIST", 1)
	h.NoPattern("news")
	levels := make([]slog.Level, len(*lines))
	for i, l := range *lines {
		levels[i] = l.level
	}
	assert.Equal(t, []slog.Level{slog.LevelError, slog.LevelError, slog.LevelWarn}, levels)
}

// TestHints_AreBounded has more causes than are reported, as a client may have.
func TestHints_AreBounded(t *testing.T) {
	h, lines := collect(new(declared.Messages))
	for i := range 1100 {
		h.NoPattern(strconv.Itoa(i))
	}
	assert.Len(t, *lines, 1000)
}
