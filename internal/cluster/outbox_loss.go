package cluster

import "encoding/binary"

// A loss begins with a number of an epoch.
type loss struct {
	channel Channel
	epoch   uint32
	first   uint64
	packets int // accepted packets of which no receiver knows that they are lost
}

// loseLocked records that a message may not have been published.
func (o *outbox) loseLocked(out *outgoing) {
	o.packets -= out.packets
	if out.kind == kindPacket || out.kind == kindGap {
		o.recordLossLocked(out.loss)
	}
}

func (o *outbox) loseAllLocked(discarded []outgoing) {
	for i := range discarded {
		o.loseLocked(&discarded[i])
	}
}

func (o *outbox) recordLossLocked(l loss) {
	known := o.losses[l.channel.Name]
	l.packets += known.packets
	if known.epoch == l.epoch { // never 0
		l.first = min(l.first, known.first)
	}
	o.losses[l.channel.Name] = l
}

// announceLossesLocked enqueues a gap message on every channel with a loss that is in reach. Its
// number shows receivers what is missing before it, even if no packet follows.
func (o *outbox) announceLossesLocked(inReach func(Channel) bool) {
	for name, l := range o.losses {
		if !inReach(l.channel) {
			continue
		}
		if c := o.numbers.channels[name]; c == nil || c.epoch != l.epoch {
			// The sequence of the loss was removed. A number of the new one that is never sent
			// makes receivers find a loss there.
			o.numbers.assign(l.channel, &nodeMessage{})
			l.first = 0
		}
		m := nodeMessage{kind: kindGap, packet: binary.AppendUvarint(nil, l.first)}
		o.numbers.assign(l.channel, &m)
		o.enqueueLocked(l.channel, &m, l.packets, nil)
		delete(o.losses, name)
	}
}
