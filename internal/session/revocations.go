package session

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/topicname"
)

// A revocations list says what access a user has lost: JSON in the broker.ValueStore. A session that has
// seen an earlier one catches up, so a client that was away, or whose node missed a packet, does not
// keep the access.
type revocations struct {
	Sequence uint64            `json:"sequence"`          // of the latest change; 0 if there is none
	Sessions uint64            `json:"sessions,omitzero"` // of the latest change that has ended all sessions
	End      End               `json:"end,omitzero"`      // of the connections, by that change
	Topics   map[string]uint64 `json:"topics,omitzero"`   // by name or pattern: that of its latest change
}

// An End is how the connections of sessions that have ended are closed. The zero End is that of sessions which
// have ended only because the list of topics became too long.
type End struct {
	Code   int    `json:"code"`
	Reason string `json:"reason,omitzero"`
}

// maxRevokedTopics bounds a list. With more topics, all sessions of the user end instead.
const maxRevokedTopics = 256

// minRevocationLifetime is how long a list is kept at least. Sequences are times in microseconds, so
// that they grow after a list has expired; clocks of nodes must not differ by more than this.
const minRevocationLifetime = time.Hour

// revocationAttempts bounds how often a change is tried while other nodes change the list, too.
const revocationAttempts = 20

// revocationLifetime is longer than a record of a session remains without being stored again.
func (n *Node) revocationLifetime() time.Duration {
	return max(minRevocationLifetime, 2*(n.config.Within+n.refreshInterval()))
}

// revocationKey returns the key of a user's list in the store.
func revocationKey(user User) string {
	return fmt.Sprintf("revoked %d %s %s", len(user.TenantID), user.TenantID, user.UserID)
}

// loadRevocations returns the list of a user and its version, which is 0 if there is none. A user
// without an ID has none.
func (n *Node) loadRevocations(ctx context.Context, user User) (l revocations, version uint64, err error) {
	if user.UserID == "" {
		return revocations{}, 0, nil
	}
	value, err := n.config.Store.LoadValue(ctx, revocationKey(user))
	if err != nil || value.Version == 0 {
		return revocations{}, 0, err
	}
	if err := decode(value.Data, &l); err != nil {
		return revocations{}, 0, err
	}
	return l, value.Version, nil
}

// A Change is one of the access that a user has lost: its number, and that of the one before. It is zero
// if that is unknown.
type Change struct{ Previous, Seq uint64 }

// Revoke stores that a user has lost the access to a topic, or to all topics that match a pattern.
func (n *Node) Revoke(ctx context.Context, user User, topic string) (Change, error) {
	return n.changeRevocations(ctx, user, func(l *revocations, seq uint64) { l.Topics[topic] = seq })
}

// EndSessions stores that all sessions of a user have ended, and how their connections are closed.
func (n *Node) EndSessions(ctx context.Context, user User, end End) error {
	_, err := n.changeRevocations(ctx, user, func(l *revocations, seq uint64) { l.Sessions, l.End, l.Topics = seq, end, nil })
	return err
}

// changeRevocations changes the list of a user, if there can be sessions.
func (n *Node) changeRevocations(ctx context.Context, user User, change func(l *revocations, seq uint64)) (stored Change, err error) {
	if n.config.Within == 0 {
		return Change{}, nil
	}
	for attempt := range revocationAttempts {
		l, version, loadErr := n.loadRevocations(ctx, user)
		if loadErr != nil {
			return Change{}, fmt.Errorf("session: load the revocations of a user: %w", loadErr)
		}
		if l.Sequence != 0 && l.Sequence == stored.Seq { // it was stored although that was unknown
			return stored, nil
		}
		previous := l.Sequence // which next changes
		stored = Change{previous, l.next(n.revocationLifetime())}
		change(&l, stored.Seq)
		_, err = n.config.Store.StoreValue(ctx, revocationKey(user), l.encode(), version, n.revocationLifetime())
		if err == nil {
			return stored, nil
		}
		if code := errors.CodeOf(err); code != errors.Aborted && code != errors.OutcomeUnknown {
			break
		}
		select { // several nodes change the list at once
		case <-time.After(random.N(time.Duration(attempt+1) * 10 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
	return Change{}, fmt.Errorf("session: store the revocations of a user: %w", err)
}

// next begins a change: it forgets what no session can have missed, and returns the new sequence.
func (l *revocations) next(lifetime time.Duration) uint64 {
	now := time.Now()
	l.Sequence = max(l.Sequence+1, uint64(now.UnixMicro()))
	if l.Topics == nil {
		l.Topics = map[string]uint64{}
	}
	for topic, seq := range l.Topics {
		if seq < uint64(now.Add(-lifetime).UnixMicro()) {
			delete(l.Topics, topic)
		}
	}
	return l.Sequence
}

// encode returns the list as it is stored.
func (l *revocations) encode() []byte {
	if len(l.Topics) > maxRevokedTopics {
		l.Sessions, l.End, l.Topics = l.Sequence, End{}, nil
	}
	return encode(l)
}

// since returns what a session has not seen that knows the list up to a sequence.
func (l *revocations) since(seq uint64) (topics []topicname.Matcher, endsSession bool) {
	for topic, changed := range l.Topics {
		if changed > seq {
			topics = append(topics, topicname.NewMatcher(topic))
		}
	}
	return topics, l.Sessions > seq
}

// Revoked is what a user has lost, for [Session.Apply].
type Revoked struct {
	user User
	list revocations
}

// followsRevocations reports whether the session must catch up with the revocations of its user before
// it is stored. After the connection has been closed, the next one does.
func (s *Session) followsRevocations() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.mustCatchUp || s.revocationsOf != s.record.user()) && s.until.IsZero() && !s.settled
}

// CatchUp applies what the session has missed, for example because a packet was lost. If the store does
// not answer, the session catches up when it is stored next.
func (s *Session) CatchUp(ctx context.Context) error {
	s.mu.Lock()
	s.mustCatchUp = true
	user := s.record.user()
	s.mu.Unlock()
	before := time.Now()
	list, _, err := s.node.loadRevocations(ctx, user)
	if err != nil {
		s.followFrom(before, user)
		return err
	}
	s.conn.Act(s, Action{Kind: EndAccess, Revoked: Revoked{user, list}})
	return nil
}

// followFrom says from when on a session that does not follow the user's revocations yet misses them, because the store
// does not answer. The clocks of nodes decide: sequences are times.
func (s *Session) followFrom(t time.Time, user User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.user() == user && s.revocationsOf != user {
		s.revocationsOf, s.record.Revocations = user, uint64(t.UnixMicro()) //nolint:gosec // not negative
	}
}

// Apply returns the topics to which the user has lost access without the session knowing it. The
// connection must leave them, or be closed if end is not nil, before anything else is granted. A new session, or
// one whose user has changed, has missed nothing: what was granted follows what was revoked before.
func (s *Session) Apply(r Revoked) (topics []topicname.Matcher, end *End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.user() != r.user || s.state == abandoned {
		return nil, nil
	}
	known, isNew := s.record.Revocations, s.revocationsOf != r.user
	s.revocationsOf, s.mustCatchUp = r.user, false
	s.record.Revocations = max(r.list.Sequence, known)
	if isNew {
		s.record.Revocations = r.list.Sequence
		return nil, nil
	}
	topics, ends := r.list.since(known)
	if !ends {
		return topics, nil
	}
	s.discardLocked()
	return topics, &r.list.End
}

// Follow notes that a change has been applied, unless an earlier one was missed: then the list is read
// when the record is stored next.
func (s *Session) Follow(change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change.Previous == 0 || s.record.Revocations == change.Previous {
		s.record.Revocations = max(s.record.Revocations, change.Seq)
		s.changedLocked()
	}
}
