package calls

import (
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/internal/protocol"
)

// Outgoing holds the calls to a client that have no answer. A is what a client answers.
type Outgoing[A any] struct {
	mu      sync.Mutex
	last    uint64                 // the number of the latest call
	waiting map[string]*Waiting[A] // by correlation ID; nil if there are none
}

// A Waiting is a call to a client. The goroutine that removes it from Outgoing decides how it
// ends: with an answer, or because its caller stops waiting.
type Waiting[A any] struct {
	ID     string
	answer chan A // of capacity 1, so that the reading goroutine does not wait
}

// Begin adds a call, and returns how many have no answer. It returns nil if that is more than limit.
func (x *Outgoing[A]) Begin(limit int) (call *Waiting[A], open int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if open = len(x.waiting) + 1; open > limit {
		return nil, open
	}
	x.last++
	call = &Waiting[A]{ID: protocol.AnswerPrefix + strconv.FormatUint(x.last, 10), answer: make(chan A, 1)}
	if x.waiting == nil {
		x.waiting = map[string]*Waiting[A]{}
	}
	x.waiting[call.ID] = call
	return call, open
}

// Await waits for the answer to a call until done or closed is closed, and ends the call. ok is false if
// there is no answer.
func (x *Outgoing[A]) Await(call *Waiting[A], done, closed <-chan struct{}) (answer A, ok bool) {
	select {
	case answer = <-call.answer:
		return answer, true
	case <-done:
	case <-closed:
	}
	return x.End(call)
}

// Deliver hands an answer over to the call that waits for it. It reports false if there is none: the answer is
// late or a duplicate, or no call had its ID. x may be nil.
func (x *Outgoing[A]) Deliver(id string, answer A) bool {
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

// End removes a call whose caller stops waiting. If the answer has arrived before, it returns that.
func (x *Outgoing[A]) End(call *Waiting[A]) (answer A, ok bool) {
	if x.remove(call.ID) == nil {
		return <-call.answer, true
	}
	return answer, false
}

// remove removes a call and returns it, or nil if there is none with this ID.
func (x *Outgoing[A]) remove(id string) *Waiting[A] {
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
