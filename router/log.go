package router

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock-go/penstock/errors"
)

// All that the router logs is logged here. The keys are a promise: conn, ip, type, error,
// stack, hook, panic, code, reason. No part of a request or of a message gets here,
// but what the application itself writes into its errors and panics.

func (r *Router) log(level slog.Level, text string, attrs ...slog.Attr) {
	r.opts.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (r *Router) logOpened(c *Conn) {
	r.log(slog.LevelDebug, "connection opened", slog.String("conn", c.id), slog.String("ip", c.ip.String()))
}

func (r *Router) logClosed(c *Conn, code StatusCode) {
	r.log(slog.LevelDebug, "connection closed", slog.String("conn", c.id), slog.Int("code", int(code)))
}

func (r *Router) logRefused(reason string, code errors.Code) {
	r.log(slog.LevelDebug, "connection refused", slog.String("reason", reason), slog.String("code", string(code)))
}

func (r *Router) logFailure(f Failure) {
	attrs := []slog.Attr{slog.String("type", f.Type), slog.String("error", errorText(f.Err))}
	if f.Conn != nil {
		attrs = append(attrs, slog.String("conn", f.Conn.id))
	}
	if p, ok := errors.AsType[*PanicError](f.Err); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	r.log(slog.LevelError, "message failed", attrs...)
}

// errorText leaves out what was written for the client, who may find its own words there.
func errorText(err error) string {
	if e, ok := errors.AsType[*errors.Error](err); ok && e.Err != nil {
		return string(e.Code) + ": " + e.Err.Error()
	}
	return err.Error()
}

func (r *Router) logHookPanic(name string, value any) {
	r.log(slog.LevelError, "hook panicked", slog.String("hook", name), slog.String("panic", panicText(value)))
}

// panicText shows what was written to be read. Anything else may hold a message, so its
// type must do.
func panicText(value any) string {
	switch v := value.(type) {
	case error:
		return v.Error()
	case string:
		return v
	default:
		return fmt.Sprintf("a %T", v)
	}
}
