package router

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

// TestContext_LeavesRoomForMessage fails when a new field makes most messages larger by a whole
// size class: a Context and a message of 24 bytes, such as a string and a number, share an
// allocation.
func TestContext_LeavesRoomForMessage(t *testing.T) {
	const sizeClass, message = 192, 24 // bytes
	assert.LessOrEqual(t, unsafe.Sizeof(Context{}), uintptr(sizeClass-message))
}
