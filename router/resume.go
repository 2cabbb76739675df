package router

import (
	"slices"
	"strconv"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/member"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/report"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/router/observe"
)

// This file handles the message by which a client resumes a session, for internal/member.

// validateResume returns an error if the request is invalid.
func validateResume(m protocol.Resume, maxTopics int) error {
	seen := map[string]bool{}
	for i, t := range m.Topics {
		switch {
		case seen[t.Topic]:
			return errors.InvalidField("topics."+strconv.Itoa(i)+".topic", "must not occur twice")
		case topicname.IsUserLog(t.Topic): // of any user
			return errors.InvalidField("topics."+strconv.Itoa(i)+".topic", "must not contain control characters")
		}
		seen[t.Topic] = true
	}
	delete(seen, "") // the log of the user is no subscription
	if len(seen) > maxTopics {
		return topicsExceeded(len(seen), maxTopics, "router.Limits.Topics")
	}
	return nil
}

// handleResume resumes a session. The route is serial, so later messages of the connection find the
// topics subscribed.
func (r *Router) handleResume(ctx *Context, m protocol.Resume) (reply protocol.Resumed, err error) {
	defer func() { r.hooks.Observe(observe.Event{Kind: observe.SessionResumed, Code: resumeCode(err)}) }()
	c := ctx.conn
	c.member.Greet()
	c.checkExpiry() // as in greet
	if err := validateResume(m, r.opts.Limits.Topics); err != nil {
		return protocol.Resumed{}, err
	}
	nameUserLog(m.Topics, ctx.Identity().user())
	return r.members.Resume(ctx.context(), (*memberConn)(c), &member.Resume{
		Resume: m, CorrelationID: ctx.CorrelationID(), Guard: ctx.guardAccess(nil), Authorize: ctx.authorizeTopic,
		Admit: func(previous string, topics []string) (map[string]struct{}, error) {
			return ctx.admitResume(m, previous, topics)
		},
		Protect:  func(where string, f func() error) *failure.Failure { return r.guard(where, ctx.route, f) },
		Report:   func(refused *failure.Failure) { c.reportLate(ctx, ctx.route.name, refused) },
		SetReply: func(again protocol.Resumed) { ctx.SetReply(again) },
	})
}

// admitResume charges the client for the topics, and asks the application, which can drop some.
func (c *Context) admitResume(m protocol.Resume, previous string, topics []string) (dropped map[string]struct{}, err error) {
	if err := c.chargeTopics(m.Topics, topics); err != nil {
		return nil, err
	}
	onResume := c.conn.router.resume.OnResume
	if onResume == nil {
		return nil, nil
	}
	dropped = map[string]struct{}{}
	if err := onResume(c, ResumedSession{previous, slices.DeleteFunc(topics, topicname.IsUserLog), dropped}); err != nil {
		return nil, err
	}
	return dropped, c.Err()
}

// resumeCode returns the code of an observe.SessionResumed.
func resumeCode(err error) errors.Code {
	code := codeOf(err)
	if code != "" && !code.IsStandard() {
		return report.OtherCode
	}
	return code
}
