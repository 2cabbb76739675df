package router

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file continues a session on another connection. resume_topics.go subscribes its topics.

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
		return topicsExceeded(len(seen), maxTopics)
	}
	return nil
}

// handleResume resumes a session. The route is serial, so later messages of the connection find the
// topics subscribed.
func (r *Router) handleResume(ctx *Context, m protocol.Resume) (reply protocol.Resumed, err error) {
	defer func() { r.observe(Event{Kind: EventSessionResumed, Code: resumeCode(err)}) }()
	c := ctx.conn
	c.sub.Greet()
	c.checkExpiry() // as in greet
	if err := validateResume(m, r.opts.Limits.Topics); err != nil {
		return protocol.Resumed{}, err
	}
	r.nameUserLog(m.Topics, ctx.Identity().user())
	revocations := c.revocations.Load() // before the list is read
	claim, err := r.claimSession(ctx, m)
	if err != nil {
		return protocol.Resumed{}, err
	}
	s := claim.session
	elsewhere := r.announceClaim(s, claim)
	if err := c.continueSession(ctx, claim); err != nil {
		return protocol.Resumed{}, err
	}
	reply.Topics = s.resumeTopics(ctx, m.Topics, claim, revocations)
	if err := ctx.Err(); err != nil {
		return protocol.Resumed{}, err // the member stays with the other connection until the client tries again
	}
	// Not before: the member would leave with the other connection, and join with this one.
	if ended, ok := claim.lacking(c); ok {
		r.announceMoved(s, ended, elsewhere)
	}
	reply.Session, reply.MemberID = s.grant(), s.memberID
	return reply, nil
}

// resumeCode returns the code of an EventSessionResumed.
func resumeCode(err error) errors.Code {
	if _, ok := failure.AsType[*LimitExceeded](err); ok {
		return errors.ResourceExhausted
	}
	code := errors.CodeOf(err)
	if code != "" && !code.IsStandard() {
		return otherCode
	}
	return code
}

// A sessionClaim moves a session to another connection.
type sessionClaim struct {
	session *session // in sessionOwners

	id      string
	owner   string // the ID of the connection that had the session
	token   string // the new one
	record  sessionRecord
	stored  []byte // the record as it is stored
	version uint64 // of stored

	unacknowledged bool // the client may not know that owner had the session

	revoked revocationList      // of the user
	dropped map[string]struct{} // topics, by OnResume
	ended   []string            // topics that have left the record
}

// errOwnSession rejects a client that resumes the session which its connection has.
var errOwnSession = &errors.Error{Code: errors.FailedPrecondition, Message: "this connection has the session already; $ws:hello returns its token"}

// claimSession checks a token, and moves its session to the connection of ctx: from then on, no other
// connection can store its record.
func (r *Router) claimSession(ctx *Context, m protocol.Resume) (*sessionClaim, error) {
	id, secret, ok := parseToken(m.Token)
	if !ok {
		return nil, errSessionEnded
	}
	if s := ctx.conn.session(); s != nil && s.id == id && !s.isOver() {
		return nil, errOwnSession
	}
	rec, value, err := r.loadSession(ctx, id)
	if err != nil {
		return nil, storeUnavailable(err)
	}
	presented := hashSecret(secret)
	if err := rec.permits(presented, ctx.Identity(), time.Now()); err != nil {
		return nil, err
	}
	claim := &sessionClaim{
		id: id, owner: rec.ConnID, record: rec, stored: value.Data, version: value.Version,
		unacknowledged: rec.Previous != nil, dropped: map[string]struct{}{},
	}
	if claim.revoked, _, err = r.loadRevocations(ctx, ctx.Identity().user()); err != nil {
		return nil, storeUnavailable(err)
	}
	if err := claim.narrow(); err != nil {
		return nil, err
	}
	if err := ctx.chargeTopics(m.Topics, &claim.record); err != nil {
		return nil, err
	}
	if err := claim.callOnResume(ctx); err != nil {
		return nil, err
	}
	claim.session = &session{conn: ctx.conn, id: id, generation: rec.Generation + 1, claiming: true}
	return claim, claim.takeAsOwner(ctx, presented)
}

// takeAsOwner is take, during which other connections can supersede this one.
func (k *sessionClaim) takeAsOwner(ctx *Context, presented []byte) error {
	owners, taken := &ctx.conn.router.owners, false
	owners.add(k.session)
	defer func() { // even if the broker calls runtime.Goexit
		if !taken {
			owners.remove(k.session)
		}
	}()
	err := k.take(ctx, presented)
	taken = err == nil
	return err
}

// callOnResume asks the application, which can drop topics.
func (k *sessionClaim) callOnResume(ctx *Context) error {
	onResume := ctx.conn.router.opts.Resume.OnResume
	if onResume == nil {
		return nil
	}
	if err := onResume(ctx, ResumedSession{k.record.ConnID, slices.DeleteFunc(k.record.topicNames(), topicname.IsUserLog), k.dropped}); err != nil {
		return err
	}
	return ctx.Err()
}

// narrow removes from the record the topics to which the user has lost access, or that OnResume has
// dropped.
func (k *sessionClaim) narrow() error {
	topics, endsSession := k.revoked.since(k.record.Revocations)
	if endsSession {
		return errSessionEnded
	}
	k.record.Revocations = max(k.record.Revocations, k.revoked.Sequence)
	k.record.Topics = maps.Clone(k.record.Topics)
	for name := range k.record.Topics {
		_, ended := k.dropped[name]
		if ended || slices.ContainsFunc(topics, func(t topicname.Matcher) bool { return t.Matches(name) }) {
			delete(k.record.Topics, name)
			k.ended = append(k.ended, name)
		}
	}
	return nil
}

// claimAttempts bounds how often a claim begins again because the previous connection has stored the
// record meanwhile.
const claimAttempts = 5

// take replaces the record by one with a new secret. The presented one remains valid until the client
// has acknowledged the new one, because the answer may be lost.
func (k *sessionClaim) take(ctx *Context, presented []byte) error {
	r, loaded := ctx.conn.router, k.record
	var hash []byte
	k.token, hash = newToken(k.id)
	unavailable := error(errConcurrentResume)
	for range claimAttempts {
		k.record = loaded
		if err := k.narrow(); err != nil {
			return err
		}
		k.record.Secret, k.record.Previous = hash, presented
		k.record.MemberID = k.record.memberID()
		k.record.ConnID = ctx.conn.id
		k.record.Generation = k.session.generation
		k.record.setIdentity(ctx.Identity())
		lifetime := r.opts.Resume.Within + r.opts.Resume.refreshInterval()
		lifetime = k.record.lifetime(lifetime, time.Now())
		if lifetime <= 0 {
			return errIdentityExpired
		}
		w := sessionWrite{data: k.record.encode(), stored: k.stored, version: k.version, lifetime: lifetime}
		version, err := r.storeSession(ctx, k.id, w)
		switch code := errors.CodeOf(err); {
		case err == nil:
			k.stored, k.version = w.data, version
			return nil
		case code == broker.OutcomeUnknown:
			unavailable = storeUnavailable(err)
		case code != errors.Aborted:
			return storeUnavailable(err)
		}
		again, value, err := r.loadSession(ctx, k.id)
		k.stored, k.version = value.Data, value.Version
		switch {
		case err != nil:
			return storeUnavailable(err)
		case string(again.Secret) == string(hash): // it was stored although that was unknown
			return nil
		case value.Version == 0:
			return errSessionEnded
		case !again.sameOwner(&loaded):
			return errConcurrentResume
		}
		if err := again.permits(presented, ctx.Identity(), time.Now()); err != nil {
			return err
		}
		loaded = again
	}
	return unavailable
}

// errConcurrentResume rejects the slower one of two clients with the same token.
var errConcurrentResume = &errors.Error{Code: errors.Aborted, Message: "another connection resumes the session"}

// storeUnavailable returns the error for a client whose session cannot be read or stored. The client
// may try again with the same token.
func storeUnavailable(err error) error {
	return &errors.Error{
		Code: errors.Unavailable, Message: "sessions cannot be resumed at the moment",
		Err: fmt.Errorf("router: resume a session: %w", err), RetryAfter: time.Second,
	}
}

// continueSession makes a claimed session that of the connection, unless another one has claimed it
// since. It ends the session that the connection had.
func (c *Conn) continueSession(ctx *Context, claim *sessionClaim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, s := c.session(), claim.session
	if s.isSuperseded() {
		c.router.owners.remove(s)
		return errConcurrentResume
	}
	s.memberID, s.token, s.unacknowledged = claim.record.memberID(), claim.token, ctx.call.ID
	s.record, s.stored, s.version = claim.record, claim.stored, claim.version
	s.revocationsOf = userKey{claim.record.TenantID, claim.record.UserID}
	s.record.Topics = nil
	c.adoptSessionLocked(s)
	if before != nil {
		before.discard()
	}
	s.begin(claim.record.Topics)
	if s.isSuperseded() {
		return errConcurrentResume
	}
	for _, t := range c.sub.TopicsLocked() { // as the member of the session
		c.rejoinLocked(t, claim.record.Topics[t.Name].Info)
	}
	return nil
}

// lacking returns the topics of the record to which the connection has not been subscribed. It
// reports false if the connection has ended meanwhile, and with it all subscriptions.
func (k *sessionClaim) lacking(c *Conn) (topics []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil, false
	}
	for _, topic := range slices.Concat(k.record.topicNames(), k.ended) {
		if c.sub.TopicLocked(topic) == nil {
			topics = append(topics, topic)
		}
	}
	return topics, true
}

// begin adds the topics in the stored record, and stores it again if it lacks others.
func (s *session) begin(stored map[string]topicGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claiming = false
	own := false
	for name := range s.record.Topics {
		_, known := stored[name]
		own = own || !known
	}
	maps.Copy(s.record.Topics, stored)
	switch {
	case own, s.dirty:
		s.changedLocked()
	default:
		s.restLocked()
	}
}

// releaseResumed sends what has been held until the answer to $ws:resume was queued.
func (c *Context) releaseResumed() {
	var joined []string
	if state := c.conn.extra().recovery.Load(); state != nil {
		joined, state.joined = state.joined, nil
	}
	for _, topic := range joined {
		c.conn.startTopic(topic)
	}
	c.conn.announceTopics(joined)
}
