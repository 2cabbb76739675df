package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
)

// A revocationList says what access a user has lost: JSON in the broker.ValueStore. A session that has
// seen an earlier one catches up, so a client that was away, or whose node missed a packet, does not
// keep the access.
type revocationList struct {
	Sequence uint64            `json:"sequence"`          // of the latest change; 0 if there is none
	Sessions uint64            `json:"sessions,omitzero"` // of the latest change that has ended all sessions
	Topics   map[string]uint64 `json:"topics,omitzero"`   // by name or pattern: that of its latest change
}

// maxRevokedTopics bounds a list. With more topics, all sessions of the user end instead.
const maxRevokedTopics = 256

// minRevocationLifetime is how long a list is kept at least. Sequences are times in microseconds, so
// that they grow after a list has expired; clocks of nodes must not differ by more than this.
const minRevocationLifetime = time.Hour

// revocationAttempts bounds how often a change is tried while other nodes change the list, too.
const revocationAttempts = 20

// revocationTimeout bounds how long DisconnectUser waits for the store.
const revocationTimeout = 5 * time.Second

// revocationLifetime is longer than a record of a session remains without being stored again.
func (o ResumeOptions) revocationLifetime() time.Duration {
	return max(minRevocationLifetime, 2*(o.Within+o.refreshInterval()))
}

// revocationKey returns the key of a user's list in the store.
func revocationKey(user userKey) string {
	return fmt.Sprintf("revoked %d %s %s", len(user.tenantID), user.tenantID, user.userID)
}

// loadRevocations returns the list of a user and its version, which is 0 if there is none. A user
// without an ID has none.
func (r *Router) loadRevocations(ctx context.Context, user userKey) (l revocationList, version uint64, err error) {
	if user.userID == "" {
		return revocationList{}, 0, nil
	}
	value, err := r.histories.LoadValue(ctx, revocationKey(user))
	if err != nil || value.Version == 0 {
		return revocationList{}, 0, err
	}
	if err := envelope.UnmarshalJSON(value.Data, &l); err != nil {
		return revocationList{}, 0, fmt.Errorf("router: the revocations of a user cannot be read: %w", failure.QuoteDecoder(err))
	}
	return l, value.Version, nil
}

// storeRevocation changes the list of a user, if there can be sessions.
func (r *Router) storeRevocation(ctx context.Context, user userKey, change func(l *revocationList, seq uint64)) (stored revocation, err error) {
	if !r.resumes() {
		return revocation{}, nil
	}
	for attempt := range revocationAttempts {
		l, version, loadErr := r.loadRevocations(ctx, user)
		if loadErr != nil {
			return revocation{}, fmt.Errorf("router: load the revocations of a user: %w", loadErr)
		}
		if l.Sequence != 0 && l.Sequence == stored.seq { // it was stored although that was unknown
			return stored, nil
		}
		stored = revocation{l.Sequence, l.next(r.opts.Resume.revocationLifetime())}
		change(&l, stored.seq)
		_, err = r.histories.StoreValue(ctx, revocationKey(user), l.encode(), version, r.opts.Resume.revocationLifetime())
		if err == nil {
			return stored, nil
		}
		if code := errors.CodeOf(err); code != errors.Aborted && code != broker.OutcomeUnknown {
			break
		}
		select { // several nodes change the list at once
		case <-time.After(rand.N(time.Duration(attempt+1) * 10 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
	return revocation{}, fmt.Errorf("router: store the revocations of a user: %w", err)
}

// next begins a change: it forgets what no session can have missed, and returns the new sequence.
func (l *revocationList) next(lifetime time.Duration) uint64 {
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
func (l *revocationList) encode() []byte {
	if len(l.Topics) > maxRevokedTopics {
		l.Sessions, l.Topics = l.Sequence, nil
	}
	data, _ := envelope.MarshalJSON(l) // strings and numbers can always be encoded
	return data
}

// since returns what a session has not seen that knows the list up to a sequence.
func (l *revocationList) since(seq uint64) (topics []topicname.Matcher, endsSession bool) {
	for topic, changed := range l.Topics {
		if changed > seq {
			topics = append(topics, topicname.NewMatcher(topic))
		}
	}
	return topics, l.Sessions > seq
}

// catchUp applies what the session has missed, for example because a packet was lost. A new session, or
// one whose user has changed, has missed nothing: what was granted follows what was revoked before.
func (s *session) catchUp(ctx context.Context) error {
	c := s.conn
	user := c.Identity().user()
	l, _, err := c.router.loadRevocations(ctx, user)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session() != s || c.Identity().user() != user {
		return nil
	}
	s.mu.Lock()
	known, isNew := s.record.Revocations, s.revocationsOf != user
	s.revocationsOf, s.mustCatchUp = user, false
	s.record.Revocations = max(l.Sequence, known)
	if isNew {
		s.record.Revocations = l.Sequence
	}
	s.mu.Unlock()
	if isNew {
		return nil
	}
	topics, ends := l.since(known)
	for _, t := range topics {
		c.revokeLocked(t)
	}
	if ends {
		s.discard()
		c.Close(StatusPermissionDenied, sessionsEndedReason())
	}
	return nil
}

// sessionsEndedReason is the reason with which a connection is closed that has missed DisconnectUser.
func sessionsEndedReason() string {
	payload := failure.Payload(&errors.Error{Code: errors.PermissionDenied, Message: "the sessions of the user have ended"})
	return wire.CloseReason(&payload)
}
