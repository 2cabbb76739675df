package wsconn

import (
	"encoding/binary"
	"math/bits"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// Bits of a frame header.
const (
	finBit  = 0x80
	rsv1    = 0x40 // a compressed message (RFC 7692, section 6)
	rsvBits = 0x70
	maskBit = 0x80
)

const (
	keyBytes             = 4
	maxClientHeaderBytes = 14
)

// A header is the header of a client's frame.
type header struct {
	opcode   byte
	fin      bool
	deflated bool // RSV1 is set
	length   uint64
	key      [keyBytes]byte
}

// A violation is an error of the peer that closes the connection.
type violation struct {
	code   int
	reason string
}

func (v *violation) Error() string { return v.reason }

func protocolError(reason string) error { return &violation{codeProtocolError, reason} }

// headerBytes returns the length of the header that begins with b0 and b1, or an error if
// these bytes are invalid. checkFirstByte has accepted b0.
func headerBytes(b0, b1 byte) (int, error) {
	if b1&maskBit == 0 {
		return 0, protocolError("a client's frame must be masked") // RFC 6455, section 5.1
	}
	n := 2 + keyBytes
	switch length := b1 &^ maskBit; {
	case b0&0x08 != 0 && length > maxControlBytes:
		return 0, protocolError("a control frame must not be longer than 125 bytes")
	case length == 126:
		n += 2
	case length == 127:
		n += 8
	}
	return n, nil
}

// parseHeader parses a header up to its key. headerBytes has accepted the first two bytes.
func parseHeader(b []byte) (header, error) {
	h := header{
		opcode:   b[0] & 0x0f,
		fin:      b[0]&finBit != 0,
		deflated: b[0]&rsv1 != 0,
		length:   uint64(b[1] &^ maskBit),
	}
	shortest := uint64(0)
	switch h.length {
	case 126:
		h.length, shortest = uint64(binary.BigEndian.Uint16(b[2:])), 126
	case 127:
		h.length, shortest = binary.BigEndian.Uint64(b[2:]), 1<<16
	}
	switch {
	case h.length < shortest:
		return header{}, protocolError("a length must take the fewest bytes")
	case h.length>>63 != 0:
		return header{}, protocolError("the highest bit of a length must be 0")
	}
	return h, nil
}

// mask applies RFC 6455, section 5.3 to src, which begins pos bytes into the payload. It reports whether what it
// writes to dst is ASCII.
func mask(dst, src []byte, key [keyBytes]byte, pos int) (ascii bool) {
	word := uint64(bits.RotateLeft32(binary.LittleEndian.Uint32(key[:]), -8*(pos%keyBytes)))
	word |= word << 32
	all := uint64(0) // bits that are set in any byte
	i := 0
	for ; i+32 <= len(src); i += 32 { // an iteration costs as much as a word
		from, to := (*[32]byte)(src[i:]), (*[32]byte)(dst[i:])
		a, b := binary.LittleEndian.Uint64(from[:])^word, binary.LittleEndian.Uint64(from[8:])^word
		c, d := binary.LittleEndian.Uint64(from[16:])^word, binary.LittleEndian.Uint64(from[24:])^word
		binary.LittleEndian.PutUint64(to[:], a)
		binary.LittleEndian.PutUint64(to[8:], b)
		binary.LittleEndian.PutUint64(to[16:], c)
		binary.LittleEndian.PutUint64(to[24:], d)
		all |= a | b | c | d
	}
	for ; i+8 <= len(src); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:]) ^ word
		binary.LittleEndian.PutUint64(dst[i:], x)
		all |= x
	}
	for j := 0; i < len(src); i, j = i+1, j+8 {
		dst[i] = src[i] ^ byte(word>>j)
		all |= uint64(dst[i])
	}
	return all&0x8080808080808080 == 0
}
