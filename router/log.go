package router

import (
	"context"
	"fmt"
	"log/slog"
)

// This file writes all log records. The keys are part of the API: conn, ip, type, error, stack,
// hook, panic, code, reason, node. A record contains no part of a request or a message, except what
// the application includes in its errors and panics.

// log must not be called under a lock: the handler of Options.Logger may call the router.
func (r *Router) log(level slog.Level, text string, attrs ...slog.Attr) {
	defer func() {
		if recover() != nil { // it cannot be logged
			r.observe(Event{Kind: EventPanicked, Reason: "Logger"})
		}
	}()
	r.opts.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (r *Router) logOpened(c *Conn) {
	r.log(slog.LevelDebug, "connection opened", slog.String("conn", c.id), slog.String("ip", c.ip.String()))
}

func (r *Router) logClosed(c *Conn, code StatusCode) {
	r.log(slog.LevelDebug, "connection closed", slog.String("conn", c.id), slog.Int("code", int(code)))
}

// logRejected logs a rejected request or connection. The text is that of a cause that is logged
// nowhere else, or "".
func (r *Router) logRejected(rejection *Rejection, text string) {
	attrs := []slog.Attr{
		slog.String("reason", rejection.Reason), slog.String("code", string(rejection.Code)), slog.String("ip", rejection.IP.String()),
	}
	if rejection.Conn != nil {
		attrs = append(attrs, slog.String("conn", rejection.Conn.id))
	}
	if text != "" {
		attrs = append(attrs, slog.String("error", text))
	}
	r.log(slog.LevelDebug, "connection rejected", attrs...)
}

// logRejectedRefresh logs that a client could not refresh its identity.
func (r *Router) logRejectedRefresh(c *Conn, failed *inspectedError) {
	r.log(slog.LevelDebug, "refresh rejected", slog.String("conn", c.id), slog.String("ip", c.ip.String()),
		slog.String("code", string(failed.payload.Code)), slog.String("error", failed.text))
}

func (r *Router) logError(report ErrorReport, failed *inspectedError) {
	attrs := []slog.Attr{slog.String("type", report.Type), slog.String("error", failed.text), slog.String("ip", report.IP.String())}
	if report.Conn != nil {
		attrs = append(attrs, slog.String("conn", report.Conn.id))
	}
	if failed.stack != nil {
		attrs = append(attrs, slog.String("stack", string(failed.stack)))
	}
	r.log(slog.LevelError, "message failed", attrs...)
}

func (r *Router) logHookPanic(name string, value any, stack []byte) {
	r.log(slog.LevelError, "hook panicked", slog.String("hook", name), slog.String("panic", panicText(value)), slog.String("stack", string(stack)))
}

// panicText returns the text of an error or a string. Any other value may be a message, so it
// returns only the type; likewise for an error whose Error method panics.
func panicText(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T", value)
		}
	}()
	switch v := value.(type) {
	case error:
		return v.Error()
	case string:
		return v
	default:
		return fmt.Sprintf("a %T", v)
	}
}
