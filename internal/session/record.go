package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonplan"
)

// A User is a user of a tenant.
type User struct{ TenantID, UserID string }

// An Identity is that of a connection.
type Identity struct {
	User

	ExpiresAt time.Time // zero if it does not expire
	Since     uint32    // when it was authenticated, as the log of the ends of access counts
}

// A record is what all nodes know about a session: JSON in the broker.ValueStore. It does not
// contain the token.
type record struct {
	Secret      []byte           `json:"secret"`            // SHA-256 of the secret in the token
	Previous    []byte           `json:"previous,omitzero"` // that of the previous one, until the client has the new one
	ConnID      string           `json:"connId"`            // of the connection to which the session belongs
	MemberID    string           `json:"memberId,omitzero"` // the Member.ConnID of its connections; empty if that is ConnID
	Generation  uint64           `json:"generation"`        // of the connections that the session has had; 1 is the first
	TenantID    string           `json:"tenantId,omitzero"`
	UserID      string           `json:"userId,omitzero"`
	Revocations uint64           `json:"revocations,omitzero"` // the Sequence of the revocations that have been applied
	ExpiresAt   int64            `json:"expiresAt,omitzero"`   // of the identity, in milliseconds since 1970; 0 is never
	Topics      map[string]Grant `json:"topics,omitzero"`      // that handlers have granted
}

// A Grant is what a handler permits with a subscription: a client that resumes gets no more, unless
// the application decides again.
type Grant struct {
	Joined bool   `json:"joined,omitzero"` // the client is present
	Info   string `json:"info,omitzero"`   // of the member
	Hidden bool   `json:"hidden,omitzero"` // it is not, even if all subscribers are

	// Of a topic with a history: the client may read what follows this position, which is empty until it
	// is known, and with State the current state, too.
	Epoch  string `json:"epoch,omitzero"`
	Offset uint64 `json:"offset,omitzero"`
	State  bool   `json:"state,omitzero"`
}

// add returns a grant that permits what either of two permits. The info of the first is kept, unless it
// is empty. The second decides whether the client is hidden.
func (g Grant) add(other Grant) Grant {
	g.Joined, g.State = g.Joined || other.Joined, g.State || other.State
	g.Info = cmp.Or(g.Info, other.Info)
	if g.Hidden = other.Hidden; g.Hidden {
		g.Joined, g.Info = false, ""
	}
	switch g.Epoch {
	case "":
		g.Epoch, g.Offset = other.Epoch, other.Offset
	case other.Epoch: // of two epochs, the earlier grant permits all of the later one
		g.Offset = min(g.Offset, other.Offset)
	}
	return g
}

// After returns the position after which a client may read that has received everything up to since. The
// zero Position is the end of what exists already.
func (g Grant) After(since broker.Position) broker.Position {
	switch {
	case g.Epoch == "":
		return broker.Position{}
	case since.Epoch == g.Epoch:
		since.Offset = max(since.Offset, g.Offset)
	}
	return since
}

// recordKey returns the key of a record in the store.
func recordKey(id string) string { return "session " + id }

// A token is the ID of a session, a dot, and a secret of the same form. Each has at least 128 random
// bits.
func newToken(id string) (token string, hash []byte) {
	secret := rand.Text()
	return id + "." + secret, hashSecret(secret)
}

func hashSecret(secret string) []byte {
	hash := sha256.Sum256([]byte(secret))
	return hash[:]
}

// tokenPartBytes is the length of what rand.Text returns.
const tokenPartBytes = 26

// parseToken splits a token. It bounds what a client can use as a key of the store.
func parseToken(token string) (id, secret string, ok bool) {
	id, secret, ok = strings.Cut(token, ".")
	return id, secret, ok && len(id) == tokenPartBytes && len(secret) == tokenPartBytes && !strings.ContainsFunc(id, isNotBase32)
}

func isNotBase32(r rune) bool { return (r < 'A' || r > 'Z') && (r < '2' || r > '7') }

// setIdentity stores to whom the session belongs.
func (rec *record) setIdentity(id Identity) {
	rec.TenantID, rec.UserID, rec.ExpiresAt = id.TenantID, id.UserID, 0
	if !id.ExpiresAt.IsZero() {
		rec.ExpiresAt = id.ExpiresAt.UnixMilli()
	}
}

func (rec *record) user() User { return User{rec.TenantID, rec.UserID} }

// lifetime returns d, or less if the identity expires earlier.
func (rec *record) lifetime(d time.Duration, now time.Time) time.Duration {
	if rec.ExpiresAt == 0 {
		return d
	}
	return min(d, time.UnixMilli(rec.ExpiresAt).Sub(now.Round(0)))
}

// memberID returns the Member.ConnID of the connections.
func (rec *record) memberID() string { return cmp.Or(rec.MemberID, rec.ConnID) }

// errEnded rejects a token that is unknown, wrong, used or expired. These must look alike.
var errEnded = &errors.Error{Code: errors.NotFound, Message: "the session has ended; subscribe again"}

// errOtherIdentity rejects a client that presents the token of another identity.
var errOtherIdentity = &errors.Error{Code: errors.PermissionDenied, Message: "the session belongs to another identity"}

// permits returns an error unless a client with this identity may resume the session.
func (rec *record) permits(secretHash []byte, user User, now time.Time) error {
	current := subtle.ConstantTimeCompare(secretHash, rec.Secret)
	previous := subtle.ConstantTimeCompare(secretHash, rec.Previous) // 0 if there is none
	switch {
	case current|previous != 1, rec.lifetime(1, now) <= 0:
		return errEnded
	case rec.user() != user:
		return errOtherIdentity
	default:
		return nil
	}
}

// sameOwner reports whether only the connection to which the session belongs has changed the record.
func (rec *record) sameOwner(other *record) bool {
	return rec.ConnID == other.ConnID && string(rec.Secret) == string(other.Secret)
}

// topicNames returns the topics, sorted.
func (rec *record) topicNames() []string { return slices.Sorted(maps.Keys(rec.Topics)) }

// decode reads a value of the store.
func decode(data []byte, v any) error {
	if err := jsonplan.Unmarshal(data, v); err != nil {
		return fmt.Errorf("session: a value of the store cannot be read: %w", failure.QuoteDecoder(err))
	}
	return nil
}

// encode returns a value of the store.
func encode(v any) []byte {
	data, _ := jsonplan.Append(nil, v) // strings and numbers can always be encoded
	return data
}

// load returns the record of a session, and its value, whose version is 0 if there is none.
func (n *Node) load(ctx context.Context, id string) (rec record, value broker.Value, err error) {
	value, err = n.config.Store.LoadValue(ctx, recordKey(id))
	if err != nil || value.Version == 0 {
		return record{}, broker.Value{}, err
	}
	if err := decode(value.Data, &rec); err != nil {
		return record{}, broker.Value{}, err
	}
	return rec, value, nil
}

// store stores a record. It sends only what differs from the record that it replaces.
func (n *Node) store(ctx context.Context, id string, w write) (version uint64, err error) {
	if w.version == 0 {
		return n.config.Store.StoreValue(ctx, recordKey(id), w.data, 0, w.lifetime)
	}
	return n.config.Store.PatchValue(ctx, recordKey(id), broker.NewPatch(w.stored, w.data), w.version, w.lifetime)
}
