package fallback

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// A nodeHash is a hash of a node's name. Two nodes with the same one are as unlikely as a guessed secret is
// useless: each would take the requests of the other for those with unknown secrets.
type nodeHash [8]byte

func hashNode(name string) (hash nodeHash) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	binary.BigEndian.PutUint64(hash[:], h.Sum64())
	return hash
}

// A secret authorizes the requests of a connection: the hash of its node, and 128 random bits.
type secret [len(nodeHash{}) + 16]byte

func newSecret(node nodeHash) (s secret) {
	_, _ = rand.Read(s[copy(s[:], node[:]):]) // never fails
	return s
}

// parseSecret parses what String returns.
func parseSecret(text string) (s secret, ok bool) {
	if base64.RawURLEncoding.EncodedLen(len(s)) != len(text) {
		return s, false
	}
	n, err := base64.RawURLEncoding.Strict().Decode(s[:], []byte(text))
	return s, err == nil && n == len(s)
}

// String returns the secret for its client.
func (s secret) String() string { return base64.RawURLEncoding.EncodeToString(s[:]) }

// node returns the hash of the node that has made the secret.
func (s secret) node() nodeHash { return nodeHash(s[:len(nodeHash{})]) }

// A digest is a hash of a secret.
type digest [sha256.Size]byte

func (s secret) digest() digest { return sha256.Sum256(s[:]) }
