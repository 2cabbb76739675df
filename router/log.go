package router

import (
	"context"
	"log/slog"

	"github.com/penstock-go/penstock/internal/hints"
	"github.com/penstock-go/penstock/internal/sampledlog"
)

// initLog must be called before anything is logged.
func (r *Router) initLog() {
	r.log.Init(r.opts.Logger)
	if r.opts.Development {
		r.hints = hints.New(&r.declared, func(level slog.Level, text string, attrs ...slog.Attr) {
			r.opts.Logger.LogAttrs(context.Background(), level, text, sampledlog.Bound(attrs...)...)
		})
	}
}
