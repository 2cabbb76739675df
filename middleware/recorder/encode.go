package recorder

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strconv"
	"strings"

	"github.com/penstock-go/penstock/limit"
)

const header = "time,key,type,cost\n"

// maxChunkBytes bounds what encode returns, except for the last line.
const maxChunkBytes = 64 << 10

// An encoder encodes entries as lines of CSV (RFC 4180).
type encoder struct {
	mac   hash.Hash
	sum   []byte
	parts []byte // of a key, each after its length
	lines []byte
}

func newEncoder(secret []byte) *encoder {
	return &encoder{mac: hmac.New(sha256.New, secret)}
}

// encode returns lines for the first n entries. They are valid until the next call.
func (e *encoder) encode(entries []entry) (lines []byte, n int) {
	e.lines = e.lines[:0]
	for n < len(entries) && len(e.lines) < maxChunkBytes {
		e.add(&entries[n])
		n++
	}
	return e.lines, n
}

func (e *encoder) add(entry *entry) {
	b := strconv.AppendInt(e.lines, entry.micros, 10)
	b = append(b, ',')
	b = base64.RawURLEncoding.AppendEncode(b, e.hash(&entry.key))
	b = append(b, ',')
	b = appendField(b, entry.kind)
	b = append(b, ',')
	b = strconv.AppendInt(b, entry.cost, 10)
	e.lines = append(b, '\n')
}

// hash returns the first 8 bytes of a key's HMAC. The parts follow their lengths, so that no two
// keys are encoded alike.
func (e *encoder) hash(key *limit.Key) []byte {
	e.parts = e.parts[:0]
	for _, part := range key {
		e.parts = binary.AppendUvarint(e.parts, uint64(len(part)))
		e.parts = append(e.parts, part...)
	}
	e.mac.Reset()
	_, _ = e.mac.Write(e.parts) // never fails
	e.sum = e.mac.Sum(e.sum[:0])
	return e.sum[:8]
}

// appendField quotes a field if necessary, and replaces line breaks, which a line cannot contain.
func appendField(b []byte, field string) []byte {
	if !strings.ContainsAny(field, ",\"\r\n") {
		return append(b, field...)
	}
	b = append(b, '"')
	for i := range len(field) {
		switch field[i] {
		case '\r', '\n':
			b = append(b, ' ')
		case '"':
			b = append(b, `""`...)
		default:
			b = append(b, field[i])
		}
	}
	return append(b, '"')
}
