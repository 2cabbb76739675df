package run

import (
	"iter"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/router"
)

// This file is what clients reach: the topic, the stream of items and the call that stops a run.

// register declares the topic and registers the messages.
func (rs *Runs[Item]) register() {
	router.Topic(rs.router, rs.text, &router.TopicOptions{
		Authorize: func(ctx *router.Context, topic router.TopicMatch) error {
			return rs.authorize(ctx, ActionAttach, topic.String())
		},
		History:  router.History{Messages: 1, Age: rs.opts.Limits.Duration + rs.opts.Retain},
		Messages: []router.Message{runmessages.Changed{}},
	})
	router.Stream(rs.router, rs.serveAttach).Doc(router.RouteDoc{
		Description: "Attaches to a run, and sends its items from a number on.",
		Reply:       runmessages.Ended{},
	})
	router.RPC(rs.router, rs.serveStop).Doc(router.RouteDoc{
		Description: "Stops a run, and answers when it has ended.",
	})
}

// errNoRun answers a client that may not know whether there is a run.
var errNoRun = &errors.Error{Code: errors.NotFound, Message: "there is no such run"}

// authorize returns NOT_FOUND unless the client may do it.
func (rs *Runs[Item]) authorize(ctx *router.Context, action Action, topic string) error {
	if rs.opts.Authorize == nil || rs.check(topic) != nil {
		return errNoRun
	}
	err := rs.opts.Authorize(ctx, action, Topic{topic, rs.pattern})
	if errors.CodeOf(err) == errors.PermissionDenied {
		return errNoRun
	}
	return err
}

// serveAttach sends the items of a run to a client.
func (rs *Runs[Item]) serveAttach(ctx *router.Context, m runmessages.Attach[Item]) iter.Seq2[Part[Item], error] {
	return func(yield func(Part[Item], error) bool) {
		if err := rs.authorizeCall(ctx, ActionAttach, m.Topic); err != nil {
			yield(Part[Item]{}, err)
			return
		}
		r, err := rs.Attach(ctx, m.Topic, From{m.Run, m.From})
		if err != nil {
			yield(Part[Item]{}, err)
			return
		}
		defer r.Close()
		if !yield(Part[Item]{Run: r.info.ID, Number: m.From}, nil) {
			return
		}
		for part, err := range r.Parts(ctx) {
			if !yield(part, err) {
				return
			}
		}
		ctx.SetReply(endedOf(r.info.ID, r.end))
	}
}

// authorizeCall is authorize for a call that waits before it sends: Authorize decides again before each item, and
// before the answer, if the access of the user was revoked meanwhile.
func (rs *Runs[Item]) authorizeCall(ctx *router.Context, action Action, topic string) error {
	decide := func() error { return rs.authorize(ctx, action, topic) }
	rs.host.GuardAccess(ctx, decide)
	return decide()
}

// serveStop stops a run for a client.
func (rs *Runs[Item]) serveStop(ctx *router.Context, m runmessages.Stop[Item]) (runmessages.Ended, error) {
	if m.Run == "" {
		return runmessages.Ended{}, errors.InvalidField("run", "it must be the ID of a run, so that a stop that is late does not end the next one")
	}
	if err := rs.authorizeCall(ctx, ActionStop, m.Topic); err != nil {
		return runmessages.Ended{}, err
	}
	rec, err := rs.runs.Stop(ctx, m.Topic, m.Run, ctx.Identity().UserID)
	if err != nil {
		return runmessages.Ended{}, err
	}
	return endedOf(rec.ID, rec.End), nil
}
