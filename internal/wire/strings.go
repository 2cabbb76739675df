package wire

import "encoding/binary"

// This file has strings in packets between nodes.

// AppendString appends the length of s and s.
func AppendString[S string | []byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// CutString reads a string that follows its length.
func CutString(b []byte) (s string, rest []byte, ok bool) {
	p, rest, ok := CutBytes(b)
	return string(p), rest, ok
}

// CutBytes reads bytes that follow their length.
func CutBytes(b []byte) (p, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n], b[n:], true
}
