package ask

import (
	"crypto/rand"
	"hash/fnv"
)

// This file makes the IDs of connections. They begin with a hash of the name of their node: another
// node that looks for a connection has to ask that one only, and knows that the connection is gone
// if there is no such node.

const (
	idAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

	nodeHashLength = 6 // 30 bits. Nodes with the same hash are asked both

	connIDLength = 32 // with 130 random bits behind the hash, and without unused memory
)

// A nodeHash is a hash of a node's name in characters of connection IDs.
type nodeHash [nodeHashLength]byte

func hashNode(name string) (hash nodeHash) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	sum := h.Sum32()
	for i := range hash {
		hash[i] = idAlphabet[sum%32]
		sum /= 32
	}
	return hash
}

// NewConnID returns the ID of a new connection of the node.
func (n *Node) NewConnID() string {
	var id [connIDLength]byte
	_, _ = rand.Read(id[nodeHashLength:]) // never fails
	for i, b := range id {
		id[i] = idAlphabet[b%32]
	}
	copy(id[:], n.hash[:])
	return string(id[:])
}

// isIn reports whether a node with this hash may have made the ID.
func (h nodeHash) isIn(connID string) bool {
	return len(connID) == connIDLength && connID[:nodeHashLength] == string(h[:])
}
