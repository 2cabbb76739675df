package history

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// A joining is a subscriber between its request and its activation. It collects what is handed over
// meanwhile. The Sequencer's lock guards it.
type joining struct {
	after    broker.Position // what the Sequencer had handed over last when the subscriber was registered
	received []broker.Publication
	broken   bool // a loss or too many publications: begin again
}

func (j *joining) add(p broker.Publication) {
	if len(j.received) >= maxBuffered {
		j.broken = true
	}
	if j.broken {
		j.received = nil
		return
	}
	p.Packet = append([]byte(nil), p.Packet...)
	j.received = append(j.received, p)
}
