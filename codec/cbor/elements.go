package cbor

import (
	"encoding/binary"
	"reflect"
)

// Major types of data items (RFC 8949, section 3.1).
const (
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
)

// indefinite is the additional information of an item whose length is not known at its beginning.
const indefinite = 31

// Elements returns the number of array elements and map members in a payload, at all levels, for
// router.Limits. If an array or a map has an indefinite length, it is the number of data items, of
// which a member has two. For a payload that is not well-formed, it may be anything.
func (*Codec) Elements(payload []byte, _ reflect.Type) int {
	items, elements, counted := 0, uint64(0), true
	for rest := payload; len(rest) > 0; items++ {
		major, info := rest[0]>>5, rest[0]&0x1f
		n, size := argument(rest[1:], info)
		if size < 0 {
			break
		}
		rest = rest[1+size:]
		switch major {
		case majorBytes, majorText:
			if info != indefinite {
				rest = rest[min(n, uint64(len(rest))):]
			}
		case majorArray, majorMap:
			counted = counted && info != indefinite
			elements += min(n, uint64(len(payload))) // more would not be well-formed
		}
	}
	if !counted {
		return items
	}
	return int(elements)
}

// argument returns the argument of an item and its size in bytes, which is -1 if it is not complete.
func argument(p []byte, info byte) (n uint64, size int) {
	switch {
	case info < 24:
		return uint64(info), 0
	case info == indefinite:
		return 0, 0
	}
	size = 1 << (info - 24)
	if info > 27 || len(p) < size {
		return 0, -1
	}
	var b [8]byte
	copy(b[8-size:], p[:size])
	return binary.BigEndian.Uint64(b[:]), size
}
