package report

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// This file has all log records of a router, except those of internal/hints. The keys are part of
// the API: conn, ip, transport, type, error, stack, hook, panic, code, reason, node, topic, suppressed. A record
// contains no part of a request or a message, except what the application includes in its errors
// and panics.

// OtherCode stands for codes of the application, which it may have received from a client.
const OtherCode errors.Code = "other"

// kindCode returns the code of an error for a Kind. A client may choose other codes.
func kindCode(code errors.Code) errors.Code {
	if code.IsStandard() {
		return code
	}
	return OtherCode
}

// Opened logs that a connection was opened.
func (l *Log) Opened(ctx context.Context, connID string, ip netip.Addr, transport string) {
	l.Debug(ctx, Kind{Text: "connection opened"}, slog.String("conn", connID), slog.String("ip", ip.String()), slog.String("transport", transport))
}

// Unflushable logs that a response cannot be streamed, because a middleware of the application has replaced the
// ResponseWriter by one that cannot flush.
func (l *Log) Unflushable(ctx context.Context, writer string) {
	l.Errors(ctx, 1, Kind{Text: "HTTP fallback cannot stream"}, slog.String("error", "the ResponseWriter "+writer+" cannot flush; its Unwrap method must return the one of net/http"))
}

// Closed logs that a connection has ended.
func (l *Log) Closed(ctx context.Context, connID string, code int) {
	l.Debug(ctx, Kind{Text: "connection closed"}, slog.String("conn", connID), slog.Int("code", code))
}

// NodeLeft logs that another node has left or failed.
func (l *Log) NodeLeft(node string) {
	l.Debug(context.Background(), Kind{Text: "node left"}, slog.String("node", node))
}

// Unreadable logs that a stored message was skipped.
func (l *Log) Unreadable(ctx context.Context, topic string, err error) {
	l.Errors(ctx, 1, Kind{Text: "stored message skipped"}, slog.String("topic", topic), slog.String("error", err.Error()))
}

// Refused logs a refused request, or a refused connection if it has an ID. The text is that of a
// cause that is logged nowhere else, or "".
func (l *Log) Refused(ctx context.Context, reason string, code errors.Code, connID string, ip netip.Addr, text string) {
	attrs := []slog.Attr{slog.String("reason", reason), slog.String("code", string(code)), slog.String("ip", ip.String())}
	if connID != "" {
		attrs = append(attrs, slog.String("conn", connID))
	}
	if text != "" {
		attrs = append(attrs, slog.String("error", text))
	}
	l.Debug(ctx, Kind{Text: "connection refused", Origin: reason, Code: kindCode(code)}, attrs...)
}

// RefreshRefused logs that a client could not refresh its identity.
func (l *Log) RefreshRefused(ctx context.Context, connID string, ip netip.Addr, failure *failure.Failure) {
	l.Debug(ctx, Kind{Text: "refresh refused", Code: kindCode(failure.Payload.Code)}, slog.String("conn", connID), slog.String("ip", ip.String()),
		slog.String("code", string(failure.Payload.Code)), slog.String("error", failure.Text))
}

// Failed logs an error of a message of a type, or of a request if connID is "". Ingress functions
// usually fail for messages of all types at the same time, so these are one kind.
func (l *Log) Failed(ctx context.Context, connID, typ string, ip netip.Addr, failure *failure.Failure) {
	kind := Kind{Text: "message failed", Type: typ, Origin: failure.Stage, Code: kindCode(failure.Payload.Code)}
	attrs := []slog.Attr{slog.String("error", failure.Text), slog.String("ip", ip.String())}
	switch {
	case connID == "":
		kind.Text = "handshake failed"
	case failure.Stage == "OnOpen":
		kind.Text = "connection failed"
	default:
		attrs = append(attrs, slog.String("type", typ))
	}
	if failure.Stage == "ingress" {
		kind.Type = ""
	}
	if connID != "" {
		attrs = append(attrs, slog.String("conn", connID))
	}
	if failure.Stack != nil {
		attrs = append(attrs, slog.String("stack", string(failure.Stack)))
	}
	l.Errors(ctx, 1, kind, attrs...)
}

// Panicked logs a panic of a hook, which stands for n of them.
func (l *Log) Panicked(ctx context.Context, n int64, hook string, value any, stack []byte) {
	l.Errors(ctx, n, Kind{Text: "hook panicked", Origin: hook}, slog.String("hook", hook), slog.String("panic", failure.PanicText(value)), slog.String("stack", string(stack)))
}
