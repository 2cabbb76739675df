package wsconn

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestConn_FitsIntoItsSizeClass fails when a new field makes every connection larger by a whole size
// class of the allocator. What few connections need belongs behind a pointer.
func TestConn_FitsIntoItsSizeClass(t *testing.T) {
	const sizeClass = 320 // bytes; the next one is 352
	assert.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(sizeClass))
}

// TestConn_PublicationsTouchTwoCacheLines fails if a field moves what queueing and writing a publication needs beyond the first
// two cache lines. With thousands of connections, each further one is read from memory twice per publication.
func TestConn_PublicationsTouchTwoCacheLines(t *testing.T) {
	var c Conn
	assert.LessOrEqual(t, unsafe.Offsetof(c.sock)+unsafe.Offsetof(c.sock.raw)+unsafe.Sizeof(c.sock.raw), uintptr(128))
}
