// Package declared has what an application declares about the messages that its server sends: their
// types, and those of the calls that clients answer. A name has one meaning. Nothing in how a
// router works depends on it: contracts have it, and internal/hints compares what is sent with it.
// Its lock is the last one of any order; it has no goroutines.
package declared

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// A Message is a message that clients receive.
type Message struct {
	Name     string // as MessageType returns it
	Type     reflect.Type
	Position string // file:line of the declaration
}

// A Call is a call that clients answer.
type Call struct {
	Message // of the server

	Reply Message // of the client; the Position is that of the call
}

// Messages are the declarations of one application. The zero value has none.
type Messages struct {
	mu    sync.Mutex
	sent  map[string]Message
	calls map[string]Call
}

// AddSent declares a message. It panics if its name is declared for another type.
func (ms *Messages) AddSent(m Message) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if other, ok := ms.sent[m.Name]; ok && other.Type != m.Type {
		panic(fmt.Sprintf("router: %q is declared as %v at %s, and as %v at %s; a type can have only one meaning",
			m.Name, other.Type, other.Position, m.Type, m.Position))
	}
	if ms.sent == nil {
		ms.sent = map[string]Message{}
	}
	ms.sent[m.Name] = m
}

// AddCall declares a call. It panics if its name is declared for other types.
func (ms *Messages) AddCall(c Call) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if other, ok := ms.calls[c.Name]; ok && (other.Type != c.Type || other.Reply.Type != c.Reply.Type) {
		panic(fmt.Sprintf("router: the call %q is declared as %v with the reply %v at %s, and as %v with the reply %v at %s; a type can have only one meaning",
			c.Name, other.Type, other.Reply.Type, other.Position, c.Type, c.Reply.Type, c.Position))
	}
	if ms.calls == nil {
		ms.calls = map[string]Call{}
	}
	ms.calls[c.Name] = c
}

// Sends reports whether a message is declared.
func (ms *Messages) Sends(name string) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	_, ok := ms.sent[name]
	return ok
}

// SendsAny reports whether any message is declared. Calls do not count.
func (ms *Messages) SendsAny() bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return len(ms.sent) > 0
}

// Calls reports whether a call is declared.
func (ms *Messages) Calls(name string) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	_, ok := ms.calls[name]
	return ok
}

// List returns the messages and the calls, by name.
func (ms *Messages) List() (sent []Message, calls []Call) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	sent = slices.SortedFunc(maps.Values(ms.sent), func(a, b Message) int { return cmp.Compare(a.Name, b.Name) })
	return sent, slices.SortedFunc(maps.Values(ms.calls), func(a, b Call) int { return cmp.Compare(a.Name, b.Name) })
}
