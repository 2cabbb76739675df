//go:build !js

package client

import (
	"context"

	"github.com/penstock-go/penstock/tracing"
)

// injectTrace returns the trace context of ctx, or nil.
func (c *Client) injectTrace(ctx context.Context) *tracing.TraceContext {
	if c.opts.InjectTrace == nil {
		return nil
	}
	t := c.opts.InjectTrace(ctx)
	return &t
}

// extractTrace returns ctx with the trace context of a call of the server.
func (c *Client) extractTrace(ctx context.Context, m *meta) context.Context {
	if c.opts.ExtractTrace == nil || m.TraceParent == "" {
		return ctx
	}
	return c.opts.ExtractTrace(ctx, tracing.TraceContext{Parent: m.TraceParent, State: m.TraceState})
}
