package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/topicname"
)

// inspection returns what package inspect needs.
func (r *Router) inspection() host.Inspection {
	return host.Inspection{
		Conn: r.inspectConn,
		UserConns: func(tenantID, userID string) (ids []string) {
			for _, c := range r.conns.OfUser(registry.User{TenantID: tenantID, UserID: userID}) {
				ids = append(ids, c.member.ID)
			}
			return ids
		},
		Topics:            r.topics.List,
		Stored:            r.topics.Stored,
		ObserveDeliveries: r.topics.ObserveDeliveries,
		Ask:               r.asks.Ask,
		Answer:            r.asks.AnswerQuestions,
	}
}

// inspectConn returns the details of an open connection of this node.
func (r *Router) inspectConn(id string) (found host.Conn, ok bool) {
	c := r.conns.ByID(id)
	if c == nil {
		return found, false
	}
	found.Calls = len(c.calls.All())
	rate := registry.Rate(r.opts.Limits.MessagesPerConn)
	found.MessageTokens, found.MessageBurst = c.rate.Left(rate, r.sinceStart(time.Now())), rate.Burst
	for _, t := range c.member.Topics() {
		if !topicname.IsUserLog(t.Name) {
			found.Topics = append(found.Topics, r.topics.Describe(t))
		}
	}
	return found, true
}
