package topic

import (
	"bytes"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/internal/envelope"
)

// This file keeps the frames of publications that this node stores, until it delivers them itself: a node does not
// parse its own packets, whether the store first confirms them or first passes them on.

// maxOwnSearched is how many publications are compared with one that is delivered. They arrive about in the order
// in which this node has begun to store them.
const maxOwnSearched = 64

// ownPublications are those of a topic that are being stored, or wait in its sequencer for others that precede
// them, which bounds them. The zero value is empty. Its lock is the last one that a topic's delivery acquires.
type ownPublications struct {
	mu      sync.Mutex
	number  uint64 // of the last one
	waiting []ownPublication
}

type ownPublication struct {
	number  uint64
	packet  []byte // what the store passes on
	message envelope.Publication
}

// add keeps a message, which it takes, and returns its number.
func (o *ownPublications) add(packet []byte, message envelope.Publication) (number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.number++
	o.waiting = append(o.waiting, ownPublication{o.number, packet, message})
	return o.number
}

// take returns the message of a packet. The caller frees it.
func (o *ownPublications) take(packet []byte) (message envelope.Publication, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.waiting[:min(len(o.waiting), maxOwnSearched)] {
		if bytes.Equal(o.waiting[i].packet, packet) {
			message = o.waiting[i].message
			o.waiting = slices.Delete(o.waiting, i, i+1)
			return message, true
		}
	}
	return message, false
}

// forget frees a message that is not delivered from what is kept.
func (o *ownPublications) forget(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.waiting {
		if o.waiting[i].number == number {
			o.waiting[i].message.Free()
			o.waiting = slices.Delete(o.waiting, i, i+1)
			return
		}
	}
}

// forgetAll is called at a loss: what is lost is not delivered.
func (o *ownPublications) forgetAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.waiting {
		o.waiting[i].message.Free()
	}
	o.waiting = nil
}
