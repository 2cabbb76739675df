package router

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/tracing"
)

// This file keeps the messages of SendToUser in a history for each user, if Options.UserHistory is
// set. It is that of a topic: the connections of the user subscribe to it when they are accepted,
// and in a session it is a topic that a handler has granted.

// nameUserLog replaces the name that a client uses for the log of its user, also on a node without Options.UserHistory, whose
// session may have begun on a node with it. The name of an anonymous client stays, and is refused as no topic has it.
func nameUserLog(topics []protocol.Subscribe, user registry.User) {
	if user.UserID == "" {
		return
	}
	if i := slices.IndexFunc(topics, func(t protocol.Subscribe) bool { return t.Topic == "" }); i >= 0 {
		topics[i].Topic = topicname.UserLog(user.TenantID, user.UserID)
	}
}

// enableUserLogs opens the logs of users, and begins to follow what ends their access. It panics if the History is
// invalid, or if the broker keeps none.
func (h History) enableUserLogs(r *Router) {
	if err := h.validate(); err != nil {
		panic(fmt.Sprintf("router: UserHistory: %v", err))
	}
	if !h.enabled() {
		return
	}
	r.mustHaveHistories("UserHistory", "keeps no histories")
	r.members.UserLogs, r.access.Durability = true, h.Durability
	r.topics.DeclareUserLogs(h.retention(), r.resumes())
	r.access.Follow()
}

// storeForUser is SendToUser with a history.
func (r *Router) storeForUser(user registry.User, m Message) (connsOnThisNode int, err error) {
	p, err := r.encodeAll(m, r.formats.All())
	if err != nil {
		p.Free()
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.Timeouts.Call)
	defer cancel()
	name := topicname.UserLog(user.TenantID, user.UserID)
	a := broker.Append{Topic: name, Retention: r.topics.PatternOf(name).Retention, Durability: r.access.Durability, Packet: r.formats.Packet(&p, tracing.TraceContext{})}
	if _, err := r.topics.Store(ctx, a, p); err != nil {
		return 0, err
	}
	return len(r.conns.OfUser(user)), nil
}
