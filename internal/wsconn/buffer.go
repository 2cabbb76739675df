package wsconn

import "sync"

// Incoming messages are read into buffers of 512 bytes, 4, 16 or 64 KiB. A
// message that outgrows one moves on to the next.
const bufferClasses = 4

// MaxBufferBytes is the most that Options.BufferBytes may be.
const MaxBufferBytes = 64 << 10

func bufferBytes(class int) int { return [bufferClasses]int{512, 4 << 10, 16 << 10, 64 << 10}[class] }

// classFor returns the class of buffer that holds n bytes, which must not be more
// than the largest holds.
func classFor(n int) (class int) {
	for bufferBytes(class) < n {
		class++
	}
	return class
}

var bufferPools [bufferClasses]sync.Pool

// A Buffer holds an incoming message. Its bytes are valid until Release.
type Buffer struct {
	Bytes []byte
	class int // the pool it belongs to; bufferClasses if to none
}

func newBuffer(class int) *Buffer {
	if b, ok := bufferPools[class].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{Bytes: make([]byte, 0, bufferBytes(class)), class: class}
}

// Release lets the buffer be reused. Nothing may refer to its bytes any more.
func (b *Buffer) Release() {
	if b.class < bufferClasses {
		b.Bytes = b.Bytes[:0]
		bufferPools[b.class].Put(b)
	}
}

// grow returns a larger buffer with the same content and releases this one.
func (b *Buffer) grow() *Buffer {
	var larger *Buffer
	if b.class+1 < bufferClasses {
		larger = newBuffer(b.class + 1)
	} else {
		larger = &Buffer{Bytes: make([]byte, 0, 2*cap(b.Bytes)), class: bufferClasses}
	}
	larger.Bytes = append(larger.Bytes, b.Bytes...)
	b.Release()
	return larger
}
