package jsonplan

import (
	"encoding/binary"
	"sync"
)

// maxCachedBytes is the length of the longest string that a stringCache keeps.
const maxCachedBytes = 32

// A stringCache has short strings that were decoded recently, so that names which most messages repeat, such as that of
// a room, are not allocated again. It is not safe for concurrent use.
type stringCache [128]string

//nolint:gochecknoglobals // a pool
var caches = sync.Pool{New: func() any { return new(stringCache) }}

// text returns b as a string.
func (c *stringCache) text(b []byte) string {
	if c == nil || len(b) > maxCachedBytes {
		return string(b)
	}
	s := &c[hash(b)%uint64(len(c))]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
}

func hash(b []byte) uint64 {
	x := uint64(len(b))
	if n := len(b); n >= 8 {
		x ^= binary.LittleEndian.Uint64(b) ^ binary.LittleEndian.Uint64(b[n-8:])*3
	} else {
		for _, c := range b {
			x = x<<8 | uint64(c)
		}
	}
	return x * 0x9e3779b97f4a7c15 >> 57
}
