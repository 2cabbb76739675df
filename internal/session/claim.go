package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file moves a session to another connection: Claim makes the record that of the connection, and
// Adopt begins to serve it. The store decides in which order connections get a session, and numbers
// them. node.go makes the earlier ones stop.

// A Request is that of a connection for the session of an earlier one.
type Request struct {
	Token         string
	CorrelationID string // of the message, for [Session.Acknowledge]
	Conn          *Conn
	Identity      Identity
	Current       *Session // that the connection has; nil if it has none

	// Admit decides whether the session is resumed, before anything changes. previous is the ID of the
	// connection that has it. It may return topics that the session loses.
	Admit func(previous string, topics []string) (dropped map[string]struct{}, err error)
}

// A Claim is a session that is becoming that of a connection.
type Claim struct {
	Session *Session
	Topics  map[string]Grant // that handlers have granted
	Ended   []string         // topics that the session has lost: by Admit, or because the user has lost the access

	request   *Request
	node      *Node
	id        string
	presented []byte // the hash of the secret in the token
	token     string // the new one
	secret    []byte // the hash of that in the new one

	revoked revocations         // of the user
	dropped map[string]struct{} // by Admit
	read    record              // as it was read
	record  record              // as it becomes
	value   broker.Value        // as it is stored
	taken   bool                // it is stored, although that was unknown

	owner          string // the ID of the connection that had the session
	unacknowledged bool   // the client may not know that owner had it
	elsewhere      bool   // an earlier connection may be on another node
}

// errOwn rejects a client that resumes the session which its connection has.
var errOwn = &errors.Error{Code: errors.FailedPrecondition, Message: "this connection has the session already; $ws:hello returns its token"}

// errConcurrent rejects the slower one of two clients with the same token.
var errConcurrent = &errors.Error{Code: errors.Aborted, Message: "another connection resumes the session"}

var errIdentityExpired = &errors.Error{Code: errors.Unauthenticated, Message: "the identity has expired"}

// errUnavailable returns the error for a client whose session cannot be read or stored. The client may
// try again with the same token.
func errUnavailable(err error) error {
	return &errors.Error{
		Code: errors.Unavailable, Message: "sessions cannot be resumed at the moment",
		Err: fmt.Errorf("session: resume a session: %w", err), RetryAfter: time.Second,
	}
}

// Claim checks a token, and moves its session to a connection: from then on, no connection that had the
// session can store its record.
func (n *Node) Claim(ctx context.Context, req *Request) (*Claim, error) {
	id, secret, ok := parseToken(req.Token)
	switch s := req.Current; {
	case !ok:
		return nil, errEnded
	case s != nil && s.id == id && !s.IsOver():
		return nil, errOwn
	}
	k := &Claim{request: req, node: n, id: id, presented: hashSecret(secret)}
	k.token, k.secret = newToken(id)
	n.gather(ctx)
	err := k.load(ctx)
	if err == nil {
		k.owner, k.unacknowledged = k.read.ConnID, k.read.Previous != nil
		k.dropped, err = req.Admit(k.owner, k.record.topicNames())
	}
	if err != nil {
		return nil, err
	}
	k.Session = &Session{node: n, conn: req.Conn, id: id, memberID: k.read.memberID(), generation: k.read.Generation + 1}
	n.add(k.Session) // while the store takes its time, other connections can supersede it
	err = errExited
	defer func() {
		if err != nil { // even if the store does not return
			k.Session.handle(k.Session.abandonLocked)
		}
	}()
	err = k.take(ctx)
	return k, err
}

// load reads the record, also after it could not be stored, or perhaps was. It returns an error unless
// the client may resume the session.
func (k *Claim) load(ctx context.Context) error {
	before, user := k.read, k.request.Identity.User
	rec, value, err := k.node.load(ctx, k.id)
	if err != nil {
		return errUnavailable(err)
	}
	if err := k.node.addUnstored(k.id, &rec); err != nil {
		return err
	}
	k.read, k.value = rec, value
	if string(rec.Secret) == string(k.secret) {
		k.taken = true
		return nil
	}
	if before.ConnID != "" && value.Version != 0 && !rec.sameOwner(&before) {
		return errConcurrent
	}
	if err := rec.permits(k.presented, user, time.Now()); err != nil {
		return err
	}
	if before.ConnID == "" {
		if k.revoked, _, err = k.node.loadRevocations(ctx, user); err != nil {
			return errUnavailable(err)
		}
	}
	return k.narrow()
}

// addUnstored replaces what only its owner changes in a record, if that is on this node: it may not have
// stored the latest grants yet, or that the client has acknowledged its token. It returns an error if the owner has not deleted the record yet.
func (n *Node) addUnstored(id string, rec *record) error {
	owner := n.of(id, rec.ConnID)
	if owner == nil {
		return nil
	}
	owner.mu.Lock()
	defer owner.mu.Unlock()
	switch {
	case owner.generation != rec.Generation:
	case owner.state == ended:
		return errEnded
	case owner.state == open, owner.state == detached:
		rec.Topics, rec.Revocations = maps.Clone(owner.record.Topics), owner.record.Revocations
		rec.Previous = owner.record.Previous
	}
	return nil
}

// narrow makes record what has been read, without the topics to which the user has lost access, or that
// Admit has dropped.
func (k *Claim) narrow() error {
	revoked, ends := k.revoked.since(k.read.Revocations)
	if ends {
		return errEnded
	}
	k.record, k.Topics, k.Ended = k.read, map[string]Grant{}, nil
	k.record.Revocations = max(k.read.Revocations, k.revoked.Sequence)
	k.record.Topics = k.Topics
	for _, name := range k.read.topicNames() {
		_, ended := k.dropped[name]
		if ended || slices.ContainsFunc(revoked, func(t topicname.Matcher) bool { return t.Matches(name) }) {
			k.Ended = append(k.Ended, name)
		} else {
			k.Topics[name] = k.read.Topics[name]
		}
	}
	return nil
}

// claimAttempts bounds how often a claim begins again because the previous connection has stored the
// record meanwhile.
const claimAttempts = 5

// take replaces the record by one with a new secret. The presented one remains valid until the client
// has acknowledged the new one, because the answer may be lost.
func (k *Claim) take(ctx context.Context) error {
	failed := error(errConcurrent)
	for range claimAttempts {
		w, err := k.nextWrite()
		if err != nil {
			return err
		}
		version, err := k.node.store(ctx, k.id, w)
		if err == nil {
			k.value = broker.Value{Data: w.data, Version: version}
			return nil
		}
		switch errors.CodeOf(err) {
		case errors.Aborted:
		case errors.OutcomeUnknown:
			failed = errUnavailable(err)
		default:
			return errUnavailable(err)
		}
		if err := k.load(ctx); err != nil || k.taken {
			return err
		}
	}
	return failed
}

// nextWrite returns what makes the session that of the connection.
func (k *Claim) nextWrite() (write, error) {
	if err := k.narrow(); err != nil {
		return write{}, err
	}
	rec, n := &k.record, k.node
	rec.Secret, rec.Previous = k.secret, k.presented
	rec.ConnID, rec.MemberID, rec.Generation = k.request.Conn.ID, k.Session.memberID, k.Session.generation
	rec.setIdentity(k.request.Identity)
	lifetime := rec.lifetime(n.config.Within+n.refreshInterval(), time.Now())
	if lifetime <= 0 {
		return write{}, errIdentityExpired
	}
	return write{data: encode(rec), stored: k.value.Data, version: k.value.Version, lifetime: lifetime}, nil
}

// Adopt makes the session that of its connection, unless another one has claimed it since. What before
// and granted are, [Node.Begin] says; the session keeps its own grants, and takes others as far as there is
// room.
func (k *Claim) Adopt(id Identity, before *Session, granted map[string]Grant) error {
	s := k.Session
	var topics map[string]Grant
	if before != nil {
		topics = before.Topics()
	}
	s.mu.Lock()
	adopted := k.adoptLocked(id, topics, granted)
	s.mu.Unlock()
	switch {
	case !adopted:
		s.handle(s.forgetLocked)
		return errConcurrent
	case before != nil:
		before.handle(before.abandonLocked)
	}
	return nil
}

func (k *Claim) adoptLocked(id Identity, before, granted map[string]Grant) bool {
	s := k.Session
	if s.state != claiming {
		return false
	}
	s.state, s.token, s.unacknowledged, s.since = open, k.token, k.request.CorrelationID, id.Since
	s.record, s.stored, s.version = k.record, k.value.Data, k.value.Version
	s.revocationsOf = k.record.user()
	s.record.setIdentity(id)
	sameIdentity := s.record.user() == k.record.user() && s.record.ExpiresAt == k.record.ExpiresAt
	s.takeTopicsLocked(k.Topics, before, granted)
	if len(s.record.Topics) > len(k.Topics) || !sameIdentity {
		s.changedLocked()
	} else {
		s.restLocked()
	}
	return true
}
