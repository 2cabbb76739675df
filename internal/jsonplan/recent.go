package jsonplan

import "encoding/binary"

// recentStrings has strings that were decoded recently, so that those which clients send again and again,
// such as names and IDs, are not allocated each time. Each place holds one string.
type recentStrings [256]string

// The lengths of strings that are remembered. The runtime does not allocate shorter ones, and longer ones
// seldom occur again.
const (
	minRecent = 2
	maxRecent = 64
)

// string returns text as a string.
func (r *recentStrings) string(text []byte) string {
	n := len(text)
	if n < minRecent || n > maxRecent {
		return string(text)
	}
	var h uint64
	switch {
	case n >= 8:
		h = binary.LittleEndian.Uint64(text) ^ binary.LittleEndian.Uint64(text[n-8:])*0x9e3779b97f4a7c15
	case n >= 4:
		h = uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	default:
		h = uint64(binary.LittleEndian.Uint16(text)) | uint64(binary.LittleEndian.Uint16(text[n-2:]))<<16
	}
	place := &r[h*0x9e3779b97f4a7c15>>56]
	if *place != string(text) {
		*place = string(text)
	}
	return *place
}
