package router

import (
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/internal/protocol"
)

// clientCalls holds the calls to a client that have no answer. A is what a client answers.
type clientCalls[A any] struct {
	mu      sync.Mutex
	last    uint64                    // the number of the latest call
	waiting map[string]*clientCall[A] // by correlation ID; nil if there are none
}

// A clientCall is a call to a client. The goroutine that removes it from clientCalls decides how it
// ends: with an answer, or because its caller stops waiting.
type clientCall[A any] struct {
	id     string
	answer chan A // of capacity 1, so that the reading goroutine does not wait
}

// begin adds a call, and returns how many have no answer. It returns nil if that is more than limit.
func (x *clientCalls[A]) begin(limit int) (call *clientCall[A], open int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if open = len(x.waiting) + 1; open > limit {
		return nil, open
	}
	x.last++
	call = &clientCall[A]{id: protocol.AnswerPrefix + strconv.FormatUint(x.last, 10), answer: make(chan A, 1)}
	if x.waiting == nil {
		x.waiting = map[string]*clientCall[A]{}
	}
	x.waiting[call.id] = call
	return call, open
}

// await waits for the answer to a call until done or closed is closed, and ends the call. ok is false if
// there is no answer.
func (x *clientCalls[A]) await(call *clientCall[A], done, closed <-chan struct{}) (answer A, ok bool) {
	select {
	case answer = <-call.answer:
		return answer, true
	case <-done:
	case <-closed:
	}
	return x.end(call)
}

// deliver hands an answer over to the call that waits for it. It reports false if there is none: the answer is
// late or a duplicate, or no call had its ID. x may be nil.
func (x *clientCalls[A]) deliver(id string, answer A) bool {
	if x == nil {
		return false
	}
	call := x.remove(id)
	if call == nil {
		return false
	}
	call.answer <- answer
	return true
}

// end removes a call whose caller stops waiting. If the answer has arrived before, it returns that.
func (x *clientCalls[A]) end(call *clientCall[A]) (answer A, ok bool) {
	if x.remove(call.id) == nil {
		return <-call.answer, true
	}
	return answer, false
}

// remove removes a call and returns it, or nil if there is none with this ID.
func (x *clientCalls[A]) remove(id string) *clientCall[A] {
	x.mu.Lock()
	defer x.mu.Unlock()
	call := x.waiting[id]
	if call == nil {
		return nil
	}
	if delete(x.waiting, id); len(x.waiting) == 0 {
		x.waiting = nil // a map keeps the memory of its largest size
	}
	return call
}
