package netpoll

import (
	"bytes"
	"sync"
	"time"
)

// Buffers hold 512 bytes, 4, 16 or 64 KiB. A message that does not fit
// into one moves to the next class.
const bufferClasses = 4

// MaxBufferBytes is the capacity of the largest pooled buffer.
const MaxBufferBytes = 64 << 10

func classBytes(class int) int { return [bufferClasses]int{512, 4 << 10, 16 << 10, 64 << 10}[class] }

// ClassFor returns the class of the smallest buffer that holds n bytes. n must not
// exceed [MaxBufferBytes].
func ClassFor(n int) (class int) {
	for classBytes(class) < n {
		class++
	}
	return class
}

var bufferPools [bufferClasses]sync.Pool

// A Buffer is a pooled byte slice. Its bytes are valid until Release.
type Buffer struct {
	Bytes []byte
	At    time.Time // when the bytes were read from a socket; for the use of the caller
	class int       // the pool it belongs to; bufferClasses if it belongs to none
}

// NewBuffer returns an empty buffer of a class.
func NewBuffer(class int) *Buffer {
	if b, ok := bufferPools[class].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{Bytes: make([]byte, 0, classBytes(class)), class: class}
}

// CopyBuffer returns a buffer with a copy of p, which belongs to no pool.
func CopyBuffer(p []byte) *Buffer { return &Buffer{Bytes: bytes.Clone(p), class: bufferClasses} }

// Release returns the buffer to its pool. The caller must not use its bytes afterwards.
func (b *Buffer) Release() {
	if b.class < bufferClasses {
		b.Bytes = b.Bytes[:0]
		bufferPools[b.class].Put(b)
	}
}

// NextCap returns the capacity of the buffer to which Grow moves the content of one of n bytes.
func NextCap(n int) int {
	if n < MaxBufferBytes {
		return classBytes(ClassFor(n + 1))
	}
	return 2 * n
}

// Grow returns a larger buffer with the same content and releases this one.
func (b *Buffer) Grow() *Buffer {
	var larger *Buffer
	if b.class+1 < bufferClasses {
		larger = NewBuffer(b.class + 1)
	} else {
		larger = &Buffer{Bytes: make([]byte, 0, NextCap(cap(b.Bytes))), class: bufferClasses}
	}
	larger.Bytes = append(larger.Bytes, b.Bytes...)
	b.Release()
	return larger
}
