package memstore

import (
	"crypto/rand"
	"hash/maphash"

	"github.com/penstock-go/penstock/broker"
)

// firstEpochs are the epochs in which the publications of new topics begin. A topic without a
// publication has offset 0 of the current one, so its position needs no memory. When the store forgets
// a topic that began in the current epoch, another one begins: the topic could otherwise use the same
// positions again. That happens at most once in metadataAge, because a topic that begins in the new
// epoch is kept for so long.
//
// The previous epoch ended at offset 0 for topics that had no publication in it. For those that had
// one and are forgotten, where it ended is not known.
type firstEpochs struct {
	current, previous string
	forgotten         map[uint64]struct{} // hashes of the topics that began in previous
	seed              maphash.Seed
}

// of returns the position of a topic that the store does not contain, and where its previous epoch
// ended.
func (e *firstEpochs) of(name string) (first, previous broker.Position) {
	if e.current == "" {
		e.current, e.seed = rand.Text(), maphash.MakeSeed()
	}
	if _, ok := e.forgotten[maphash.String(e.seed, name)]; !ok {
		previous.Epoch = e.previous
	}
	return broker.Position{Epoch: e.current}, previous
}

// forget must be called when a topic with publications is removed. It returns how much memory that
// takes.
func (e *firstEpochs) forget(t *topic) (grown int64) {
	before := len(e.forgotten)
	switch t.epoch {
	case e.current:
		e.previous, e.current = e.current, rand.Text()
		e.forgotten = map[uint64]struct{}{}
	case e.previous:
	default: // no topic has this epoch any more, unless it keeps it
		return 0
	}
	e.forgotten[maphash.String(e.seed, t.name)] = struct{}{}
	return forgottenBytes * int64(len(e.forgotten)-before)
}
