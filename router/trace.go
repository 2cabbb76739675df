package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/tracing"
)

// This file traces messages, publications and calls by Options.Tracer.

// startMessage starts the span of a received message.
func (c *Conn) startMessage(in *incoming) {
	identity, find := in.identity.value(), wire.FindTrace
	if in.codec != nil {
		find = wire.FindBinaryTrace
	}
	in.ctx, _ = c.router.spans.Start(&c.ctx, tracing.Operation{
		Kind: tracing.Message, Type: in.typ(), At: in.At, Remote: find(in.Bytes, in.Truncated()),
		ConnID: c.member.ID, IP: c.ip, TenantID: identity.TenantID, UserID: identity.UserID,
	})
}

// publishTraced publishes a message in a span.
func (r *Router) publishTraced(ctx context.Context, name string, m Message, opts PublishOption) (err error) {
	if opts.stored {
		ctx = opts.ctx
	}
	typ, _ := envelope.MessageType(m) // with an error, it is not published
	ctx, traced := r.spans.Start(ctx, tracing.Operation{Kind: tracing.Publish, Type: typ, Topic: r.topics.PatternOf(name).Text, At: time.Now()})
	if opts.stored {
		opts.ctx = ctx
	}
	receivers := 0
	if traced {
		defer func() { r.spans.End(ctx, tracing.Result{Code: codeOf(err), Connections: receivers}) }()
	}
	receivers, err = r.publishNow(ctx, name, m, opts)
	return err
}

// receiveMessage delivers a message of another node, in a span if that node has traced it.
func (r *Router) receiveMessage(name string, packet []byte) {
	if !r.spans.IsOn() {
		r.topics.ReceiveMessage(name, packet)
		return
	}
	ctx, traced := context.Background(), false
	if remote := envelope.PacketTrace(packet); remote.Parent != "" {
		ctx, traced = r.spans.Start(ctx, tracing.Operation{Kind: tracing.Deliver, Topic: r.topics.PatternOf(name).Text, At: time.Now(), Remote: remote})
	}
	if receivers := r.topics.ReceiveMessage(name, packet); traced {
		r.spans.End(ctx, tracing.Result{Connections: receivers})
	}
}
