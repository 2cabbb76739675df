package deflate

import (
	"encoding/binary"
	"math/bits"
)

// A bitWriter writes a block with the fixed Huffman codes (RFC 1951, section 3.2.6).
type bitWriter struct {
	out  []byte
	bits uint64 // that have not been written
	n    int    // how many; less than 32 between calls
}

// fixedBlock is the header of such a block that is not the last one.
const (
	fixedBlock     = 0b010
	fixedBlockBits = 3
)

// maxMatch is the longest match that is written. One of 258 bytes would have a symbol of its own.
const maxMatch = 257

// The symbols of literals and lengths begin with 0, those of lengths with lengthSymbols, and those whose codes
// differ with the other constants.
const (
	longLiterals  = 144
	lengthSymbols = 257
	longLengths   = 280
)

func (b *bitWriter) literal(c byte) {
	if c < longLiterals {
		b.code(0x30+int(c), 8)
	} else {
		b.code(0x190+int(c)-longLiterals, 9)
	}
}

// match writes a reference to n bytes.
func (b *bitWriter) match(n, distance int) {
	symbol, extra := split(n-3, 2)
	if symbol += lengthSymbols; symbol < longLengths {
		b.code(symbol-lengthSymbols+1, 7)
	} else {
		b.code(0xc0+symbol-longLengths, 8)
	}
	b.write(n-3, extra)
	symbol, extra = split(distance-1, 1)
	b.code(symbol, 5)
	b.write(distance-1, extra)
}

// split returns the symbol of a length or distance, counted from the first one, and how many of the value's
// lower bits follow it. There are 1<<k symbols for each number of bits, and twice as many for none.
func split(value, k int) (symbol, extra int) {
	extra = max(bits.Len(uint(value))-1-k, 0)
	return extra<<k + value>>extra, extra
}

// endBlock returns the stream with the end of the block and of a flush, without flushTail.
func (b *bitWriter) endBlock() []byte {
	b.code(0, 7)
	b.write(0, 3) // the header of the empty block whose rest is flushTail
	for ; b.n > 0; b.n -= 8 {
		b.out = append(b.out, byte(b.bits))
		b.bits >>= 8
	}
	return b.out
}

// code writes a Huffman code of n bits. Its most significant bit comes first.
func (b *bitWriter) code(v, n int) { b.write(int(bits.Reverse16(uint16(v))>>(16-n)), n) }

// write writes the lower n bits of v, at most 16.
func (b *bitWriter) write(v, n int) {
	b.bits |= uint64(v&(1<<n-1)) << b.n
	if b.n += n; b.n >= 32 {
		b.out = binary.LittleEndian.AppendUint32(b.out, uint32(b.bits))
		b.bits >>= 32
		b.n -= 32
	}
}
