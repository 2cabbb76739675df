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
