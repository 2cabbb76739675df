package router

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/hints"
)

// This file writes all log records. The keys are part of the API: conn, ip, type, error, stack,
// hook, panic, code, reason, node, suppressed. A record contains no part of a request or a message,
// except what the application includes in its errors and panics, and hints (internal/hints).
// Records are bounded in size and number, because clients cause them.

// How many lines of one kind are written. One failure of a database fails every message that needs it,
// so errors are rare in the log; events of connections are for debugging, where each one counts.
const (
	errorLinesPerInterval = 1
	errorLineInterval     = 5 * time.Second
	debugLinesPerInterval = 10
	debugLineInterval     = time.Second
)

// A logKind is what is sampled together. Clients must not choose anything in it.
type logKind struct {
	text   string
	typ    string // of the message
	origin string // the stage, the check or the hook
	code   errors.Code
}

// A logLine is a line of the log.
type logLine struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// kindCode returns the code of an error for a logKind. A client may choose other codes.
func kindCode(code errors.Code) errors.Code {
	if code.IsStandard() {
		return code
	}
	return otherCode
}

func (r *Router) initLog() {
	r.errorLines.Init(errorLinesPerInterval, errorLineInterval, r.writeLog)
	r.debugLines.Init(debugLinesPerInterval, debugLineInterval, r.writeLog)
	if r.opts.Development {
		r.hints = hints.New(&r.declared, func(level slog.Level, text string, attrs ...slog.Attr) {
			r.writeLog(logLine{level, text, boundAttrs(attrs)}, 0)
		})
	}
}

// reportErrors logs n errors of a kind as one; see reportDebug.
func (r *Router) reportErrors(n int64, kind logKind, attrs ...slog.Attr) {
	r.errorLines.Add(kind, logLine{slog.LevelError, kind.text, boundAttrs(attrs)}, n)
}

// reportDebug must not be called under a lock: the handler of Options.Logger may call the router.
func (r *Router) reportDebug(kind logKind, attrs ...slog.Attr) {
	if r.reportsDebug() {
		r.debugLines.Add(kind, logLine{slog.LevelDebug, kind.text, boundAttrs(attrs)}, 1)
	}
}

// reportsDebug reports whether the Logger writes lines at debug level: if it does not, they need not be
// counted.
func (r *Router) reportsDebug() bool {
	return r.opts.Logger.Enabled(context.Background(), slog.LevelDebug)
}

// writeLog passes a line to the Logger.
func (r *Router) writeLog(line logLine, suppressed int64) {
	if suppressed > 0 {
		line.attrs = append(line.attrs, slog.Int64("suppressed", suppressed))
	}
	r.opts.Logger.LogAttrs(context.Background(), line.level, line.text, line.attrs...)
}

// flushLog writes the numbers of lines that are suppressed.
func (r *Router) flushLog() {
	r.errorLines.FlushAll()
	r.debugLines.FlushAll()
}

// Bounds of what one line contains. Errors and panics of the application may repeat what a client or a
// server has sent.
const (
	maxLoggedErrorBytes = 512
	maxLoggedStackBytes = 8192
	maxLoggedBytes      = 128 // of any other attribute
)

// boundAttrs bounds the texts of attributes, in place.
func boundAttrs(attrs []slog.Attr) []slog.Attr {
	for i, attr := range attrs {
		if attr.Value.Kind() != slog.KindString {
			continue
		}
		limit := maxLoggedBytes
		switch attr.Key {
		case "error", "panic", "remedy":
			limit = maxLoggedErrorBytes
		case "stack":
			limit = maxLoggedStackBytes
		}
		attrs[i].Value = slog.StringValue(printable(failure.Shorten(attr.Value.String(), limit)))
	}
	return attrs
}

// printable replaces control characters, which handlers write as up to six bytes or not at all, and
// invalid UTF-8 with U+FFFD.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, text)
}

func (r *Router) reportOpened(c *Conn) {
	r.reportDebug(logKind{text: "connection opened"}, slog.String("conn", c.id), slog.String("ip", c.ip.String()))
}

func (r *Router) reportClosed(c *Conn, code StatusCode) {
	r.reportDebug(logKind{text: "connection closed"}, slog.String("conn", c.id), slog.Int("code", int(code)))
}

// reportNodeLeft logs that another node has left or failed.
func (r *Router) reportNodeLeft(node string) {
	r.reportDebug(logKind{text: "node left"}, slog.String("node", node))
}

// reportRefusedDebug logs a refused request or connection. The text is that of a cause that is logged
// nowhere else, or "".
func (r *Router) reportRefusedDebug(refusal *Refusal, text string) {
	attrs := []slog.Attr{
		slog.String("reason", refusal.Reason), slog.String("code", string(refusal.Code)), slog.String("ip", refusal.IP.String()),
	}
	if refusal.Conn != nil {
		attrs = append(attrs, slog.String("conn", refusal.Conn.id))
	}
	if text != "" {
		attrs = append(attrs, slog.String("error", text))
	}
	r.reportDebug(logKind{text: "connection refused", origin: refusal.Reason, code: kindCode(refusal.Code)}, attrs...)
}

// reportRefusedRefresh logs that a client could not refresh its identity.
func (r *Router) reportRefusedRefresh(c *Conn, failure *failure.Failure) {
	r.reportDebug(logKind{text: "refresh refused", code: kindCode(failure.Payload.Code)}, slog.String("conn", c.id), slog.String("ip", c.ip.String()),
		slog.String("code", string(failure.Payload.Code)), slog.String("error", failure.Text))
}

// reportFailure logs an error. Ingress functions usually fail for messages of all types at the same
// time, so these are one kind.
func (r *Router) reportFailure(report ErrorReport, failure *failure.Failure) {
	kind := logKind{text: "message failed", typ: report.Type, origin: failure.Stage, code: kindCode(failure.Payload.Code)}
	attrs := []slog.Attr{slog.String("error", failure.Text), slog.String("ip", report.IP.String())}
	switch {
	case report.Conn == nil:
		kind.text = "handshake failed"
	case failure.Stage == "OnOpen":
		kind.text = "connection failed"
	default:
		attrs = append(attrs, slog.String("type", report.Type))
	}
	if failure.Stage == "ingress" {
		kind.typ = ""
	}
	if report.Conn != nil {
		attrs = append(attrs, slog.String("conn", report.Conn.id))
	}
	if failure.Stack != nil {
		attrs = append(attrs, slog.String("stack", string(failure.Stack)))
	}
	r.reportErrors(1, kind, attrs...)
}

// reportPanics logs a panic of a hook, which stands for n of them.
func (r *Router) reportPanics(n int64, name string, value any, stack []byte) {
	r.reportErrors(n, logKind{text: "hook panicked", origin: name}, slog.String("hook", name), slog.String("panic", failure.PanicText(value)), slog.String("stack", string(stack)))
}
