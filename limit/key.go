package limit

import "hash/maphash"

// A Key names a bucket by up to four parts. Two keys are equal if all their parts are equal,
// so a part that contains a separator cannot imitate another key. The zero Key is valid.
//
// By convention the first part says what the other parts are, such as "user" or "ip": then a
// user named "192.0.2.1" does not share a bucket with that address.
type Key [4]string

// Hash returns a hash of the key's parts and their positions, which is never 0. A client that
// does not know the seed cannot construct keys that share a hash.
func (k *Key) Hash(seed maphash.Seed) uint64 {
	const odd = 0x9e3779b97f4a7c15 // separates equal parts at different positions
	hash, factor := uint64(odd), uint64(1)
	for i := range k {
		if k[i] != "" {
			hash += maphash.String(seed, k[i]) * factor
		}
		factor *= odd
	}
	return max(hash, 1)
}
