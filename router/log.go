package router

import (
	"context"
	"log/slog"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/hints"
	"github.com/penstock-go/penstock/internal/sampledlog"
)

// This file writes all log records. The keys are part of the API: conn, ip, type, error, stack,
// hook, panic, code, reason, node, suppressed. A record contains no part of a request or a message,
// except what the application includes in its errors and panics, and hints (internal/hints).
// Records are bounded in size and number (internal/sampledlog), because clients cause them.

// kindCode returns the code of an error for a sampledlog.Kind. A client may choose other codes.
func kindCode(code errors.Code) errors.Code {
	if code.IsStandard() {
		return code
	}
	return otherCode
}

func (r *Router) initLog() {
	r.log.Init(r.opts.Logger)
	if r.opts.Development {
		r.hints = hints.New(&r.declared, func(level slog.Level, text string, attrs ...slog.Attr) {
			r.opts.Logger.LogAttrs(context.Background(), level, text, sampledlog.Bound(attrs...)...)
		})
	}
}

func (r *Router) reportOpened(c *Conn) {
	r.log.Debug(sampledlog.Kind{Text: "connection opened"}, slog.String("conn", c.id), slog.String("ip", c.ip.String()))
}

func (r *Router) reportClosed(c *Conn, code StatusCode) {
	r.log.Debug(sampledlog.Kind{Text: "connection closed"}, slog.String("conn", c.id), slog.Int("code", int(code)))
}

// reportNodeLeft logs that another node has left or failed.
func (r *Router) reportNodeLeft(node string) {
	r.log.Debug(sampledlog.Kind{Text: "node left"}, slog.String("node", node))
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
	r.log.Debug(sampledlog.Kind{Text: "connection refused", Origin: refusal.Reason, Code: kindCode(refusal.Code)}, attrs...)
}

// reportRefusedRefresh logs that a client could not refresh its identity.
func (r *Router) reportRefusedRefresh(c *Conn, failure *failure.Failure) {
	r.log.Debug(sampledlog.Kind{Text: "refresh refused", Code: kindCode(failure.Payload.Code)}, slog.String("conn", c.id), slog.String("ip", c.ip.String()),
		slog.String("code", string(failure.Payload.Code)), slog.String("error", failure.Text))
}

// reportFailure logs an error. Ingress functions usually fail for messages of all types at the same
// time, so these are one kind.
func (r *Router) reportFailure(report ErrorReport, failure *failure.Failure) {
	kind := sampledlog.Kind{Text: "message failed", Type: report.Type, Origin: failure.Stage, Code: kindCode(failure.Payload.Code)}
	attrs := []slog.Attr{slog.String("error", failure.Text), slog.String("ip", report.IP.String())}
	switch {
	case report.Conn == nil:
		kind.Text = "handshake failed"
	case failure.Stage == "OnOpen":
		kind.Text = "connection failed"
	default:
		attrs = append(attrs, slog.String("type", report.Type))
	}
	if failure.Stage == "ingress" {
		kind.Type = ""
	}
	if report.Conn != nil {
		attrs = append(attrs, slog.String("conn", report.Conn.id))
	}
	if failure.Stack != nil {
		attrs = append(attrs, slog.String("stack", string(failure.Stack)))
	}
	r.log.Errors(1, kind, attrs...)
}

// reportPanics logs a panic of a hook, which stands for n of them.
func (r *Router) reportPanics(n int64, name string, value any, stack []byte) {
	r.log.Errors(n, sampledlog.Kind{Text: "hook panicked", Origin: name}, slog.String("hook", name), slog.String("panic", failure.PanicText(value)), slog.String("stack", string(stack)))
}
