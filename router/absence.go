package router

import (
	"context"

	"github.com/penstock-go/penstock/internal/topic"
)

// leaveForGood ends the presence of a connection that is about to be closed, where its user would
// otherwise stay for the time of PresenceGrace.
func (c *Conn) leaveForGood() {
	c.router.members.EndPresence(&c.member, func(t *topic.Topic) bool { return t.Pattern.PresenceGrace > 0 })
}

// reportPresence calls Options.OnPresence once, and goes on behind what waits in Hooks.Later.
func (r *Router) reportPresence() {
	event, ok := r.topics.NextPresence()
	if !ok {
		return
	}
	defer r.hooks.Later.Add(r.reportPresence) // even if the hook does not return
	r.hooks.Call(context.Background(), "OnPresence", func() { r.opts.OnPresence(PresenceEvent{event.Topic, Member(event.Member), event.Joined}) })
}
