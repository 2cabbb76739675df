package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// A ring is an io_uring instance (man 7 io_uring). One goroutine at a time may use it. Memory whose
// address the kernel has must be on the heap, where the garbage collector does not move it.
type ring struct {
	fd          int
	taken       *uint32 // how many submissions the kernel has taken
	published   *uint32 // how many it may take
	prepared    uint32
	submissions []submission
	handled     *uint32 // how many completions have been handled
	completed   *uint32
	completions []completion
	offers      []offer // of buffers that the kernel may fill
	offered     uint16  // how many offers there have been
	buffers     [][]byte
}

// These are the kernel's structs io_uring_sqe, io_uring_cqe, io_uring_buf and io_uring_params.
type (
	submission struct {
		operation, flags uint8
		priority         uint16 // of receives: flags
		fd               int32
		_, address       uint64
		length, options  uint32
		data             uint64 // of the completion
		_                [3]uint64
	}
	completion struct {
		data   uint64
		result int32 // the negative error number if the operation has failed
		flags  uint32
	}
	offer struct {
		address uint64
		length  uint32
		id      uint16
		offered uint16 // of the ring, in its first entry
	}
	ringOffsets struct{ head, tail, mask, entries, flags, completions, array, _, _, _ uint32 }
	ringSetup   struct {
		submissions, completions, flags uint32
		_                               [7]uint32
		taken, completed                ringOffsets
	}
)

// Numbers of system calls, which are the same on all architectures, and constants of linux/io_uring.h.
const (
	callSetup, callEnter, callRegister = 425, 426, 427

	setupCompletions, setupSubmitAll = 1 << 3, 1 << 7
	cooperative                      = 1 << 8        // the kernel receives during system calls of the thread, and interrupts nothing
	oneThread                        = 1<<12 | 1<<13 // it receives during callEnter, which one thread alone may call

	enterGetEvents, registerBuffers, submissionsAt = 1 << 0, 22, 0x10000000
	operationPoll, operationSend, operationReceive = 6, 26, 27
	selectBuffer, skipSuccess                      = 1 << 5, 1 << 6 // flags of submissions
	receiveMultishot, pollMultishot                = 1 << 1, 1 << 0
	hasBuffer, hasMore, bufferShift                = 1 << 0, 1 << 1, 16 // flags of completions
)

const (
	ringSize    = 256
	completions = 4096
	bufferCount = 64
	bufferSize  = 4 << 10
)

// newRing returns a ring, or an error if the system does not permit one or lacks what it needs.
func newRing(flags uint32) (*ring, error) {
	s := ringSetup{completions: completions, flags: flags | setupCompletions | setupSubmitAll}
	fd, _, errno := syscall.RawSyscall(callSetup, ringSize, uintptr(unsafe.Pointer(&s)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring needs Linux 6.1 and permission to use it: %w", os.NewSyscallError("io_uring_setup", errno))
	}
	r := &ring{fd: int(fd)}
	shared, err := mapped(r.fd, 0, int(max(s.taken.array+4*ringSize, s.completed.completions+16*completions)), 0)
	if err != nil {
		return nil, err
	}
	entries, err := mapped(r.fd, submissionsAt, 64*ringSize, 0)
	if err != nil {
		return nil, err
	}
	number := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&shared[at])) }
	r.taken, r.published = number(s.taken.head), number(s.taken.tail)
	r.handled, r.completed = number(s.completed.head), number(s.completed.tail)
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&entries[0])), ringSize)
	r.completions = unsafe.Slice((*completion)(unsafe.Pointer(&shared[s.completed.completions])), completions)
	for i := range uint32(ringSize) {
		*number(s.taken.array + 4*i) = i
	}
	return r, r.offerBuffers()
}

// mapped returns memory that is shared with the kernel: a part of a ring, or, if flags is MAP_ANON, new memory.
func mapped(fd int, offset int64, size, flags int) ([]byte, error) {
	p, err := syscall.Mmap(fd, offset, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|flags)
	return p, os.NewSyscallError("mmap", err)
}

func (r *ring) offerBuffers() error {
	memory, err := mapped(-1, 0, 16*bufferCount, syscall.MAP_ANON)
	if err != nil {
		return err
	}
	buffers := [5]uint64{addressOf(memory), bufferCount} // struct io_uring_buf_reg, group 0
	_, _, errno := syscall.RawSyscall6(callRegister, uintptr(r.fd), registerBuffers, uintptr(unsafe.Pointer(&buffers)), 1, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("io_uring_register", errno)
	}
	r.offers = unsafe.Slice((*offer)(unsafe.Pointer(&memory[0])), bufferCount)
	for id := range uint16(bufferCount) {
		r.buffers = append(r.buffers, make([]byte, bufferSize))
		r.offer(id)
	}
	return nil
}

// offer lets the kernel fill a buffer.
func (r *ring) offer(id uint16) {
	o := &r.offers[r.offered%bufferCount]
	o.address, o.length, o.id = addressOf(r.buffers[id]), bufferSize, id
	r.offered++
	first := &r.offers[0]
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), uint32(first.id)|uint32(r.offered)<<16) // little endian
}

// submit returns an operation to be filled in, which the next call of enter submits.
func (r *ring) submit(operation uint8, fd int, data uint64) *submission {
	if r.unsubmitted() == ringSize {
		r.enter(0)
	}
	s := &r.submissions[r.prepared%ringSize]
	*s = submission{operation: operation, fd: int32(fd), data: data}
	r.prepared++
	return s
}

func (r *ring) unsubmitted() uint32 { return r.prepared - atomic.LoadUint32(r.taken) }

// send submits the sending of p. There is a completion only if the kernel does not take all of p at once.
func (r *ring) send(fd int, p []byte, data uint64) {
	s := r.submit(operationSend, fd, data)
	s.flags, s.options = skipSuccess, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL|syscall.MSG_WAITALL
	s.address, s.length = addressOf(p), uint32(len(p))
}

// enter submits all operations, and waits for one completion if wait is 1, and for none if it is 0.
func (r *ring) enter(wait uintptr) {
	atomic.StoreUint32(r.published, r.prepared)
	call := syscall.RawSyscall6
	if wait > 0 {
		call = syscall.Syscall6
	}
	for {
		_, _, errno := call(callEnter, uintptr(r.fd), uintptr(r.unsubmitted()), wait, enterGetEvents, 0, 0)
		if errno == 0 {
			return
		}
		if errno != syscall.EINTR {
			fatal(os.NewSyscallError("io_uring_enter", errno))
		}
	}
}

func (r *ring) pending() bool { return *r.handled != atomic.LoadUint32(r.completed) }

// next returns the next completion, if there is one.
func (r *ring) next() (c completion, ok bool) {
	if r.pending() {
		c, ok = r.completions[*r.handled%completions], true
		atomic.AddUint32(r.handled, 1)
	}
	return c, ok
}

func addressOf(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&p[0]))) }
