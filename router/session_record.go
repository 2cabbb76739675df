package router

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A sessionRecord is what all nodes know about a session: JSON in the broker.ValueStore. It does not
// contain the token.
type sessionRecord struct {
	Secret     []byte                  `json:"secret"`            // SHA-256 of the secret in the token
	Previous   []byte                  `json:"previous,omitzero"` // that of the previous one, until the client has the new one
	ConnID     string                  `json:"connId"`            // of the connection to which the session belongs
	Generation uint64                  `json:"generation"`        // of the connections that the session has had; 1 is the first
	TenantID   string                  `json:"tenantId,omitzero"`
	UserID     string                  `json:"userId,omitzero"`
	ExpiresAt  int64                   `json:"expiresAt,omitzero"` // of the identity, in milliseconds since 1970; 0 is never
	Topics     map[string]sessionTopic `json:"topics,omitzero"`    // to which handlers have subscribed the connection
}

// A sessionTopic is a subscription that a handler has made.
type sessionTopic struct {
	Joined bool   `json:"joined,omitzero"` // by Conn.Join
	Info   string `json:"info,omitzero"`   // of the member
}

// sessionKey returns the key of a record in the store.
func sessionKey(id string) string { return "session " + id }

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
func (rec *sessionRecord) setIdentity(id Identity) {
	rec.TenantID, rec.UserID, rec.ExpiresAt = id.TenantID, id.UserID, 0
	if !id.ExpiresAt.IsZero() {
		rec.ExpiresAt = id.ExpiresAt.UnixMilli()
	}
}

// lifetime returns d, or less if the identity expires earlier.
func (rec *sessionRecord) lifetime(d time.Duration, now time.Time) time.Duration {
	if rec.ExpiresAt == 0 {
		return d
	}
	return min(d, time.UnixMilli(rec.ExpiresAt).Sub(now.Round(0)))
}

// errSessionEnded rejects a token that is unknown, wrong, used or expired. These must look alike.
var errSessionEnded = &errors.Error{Code: errors.NotFound, Message: "the session has ended; subscribe again"}

// errOtherIdentity rejects a client that presents the token of another identity.
var errOtherIdentity = &errors.Error{Code: errors.PermissionDenied, Message: "the session belongs to another identity"}

// permits returns an error unless a client with this identity may resume the session.
func (rec *sessionRecord) permits(secretHash []byte, id Identity, now time.Time) error {
	current := subtle.ConstantTimeCompare(secretHash, rec.Secret)
	previous := subtle.ConstantTimeCompare(secretHash, rec.Previous) // 0 if there is none
	switch {
	case current|previous != 1, rec.lifetime(1, now) <= 0:
		return errSessionEnded
	case rec.TenantID != id.TenantID || rec.UserID != id.UserID:
		return errOtherIdentity
	default:
		return nil
	}
}

// sameOwner reports whether only the connection to which the session belongs has changed the record.
func (rec *sessionRecord) sameOwner(other *sessionRecord) bool {
	return rec.ConnID == other.ConnID && string(rec.Secret) == string(other.Secret) && string(rec.Previous) == string(other.Previous)
}

// topicNames returns the topics, sorted.
func (rec *sessionRecord) topicNames() []string { return slices.Sorted(maps.Keys(rec.Topics)) }

// loadSession returns the record of a session and its version, which is 0 if there is none.
func (r *Router) loadSession(ctx context.Context, id string) (rec sessionRecord, version uint64, err error) {
	value, err := r.histories.LoadValue(ctx, sessionKey(id))
	if err != nil || value.Version == 0 {
		return sessionRecord{}, 0, err
	}
	if err := unmarshal(value.Data, &rec, false); err != nil {
		return sessionRecord{}, 0, fmt.Errorf("router: the record of a session cannot be read: %w", err)
	}
	return rec, value.Version, nil
}

// encode returns the record as it is stored.
func (rec *sessionRecord) encode() []byte {
	var data byteWriter
	_ = marshal(&data, rec) // strings and numbers can always be encoded
	return data
}
