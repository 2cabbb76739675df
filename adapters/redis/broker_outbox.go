package redis

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// An outbox publishes in order, what waits at the same time in one round trip.
type outbox struct {
	client  goredis.UniversalClient
	name    string
	sharded bool

	mu      sync.Mutex
	waiting []letter
	bytes   int // of what waits
	numbers numbers
	owed    map[string]loss // by channel
	running bool
	closed  bool
}

type letter struct {
	channel  string
	numbered bool
	loss     // if it is lost
	text     []byte
}

// A loss begins with a number of an epoch.
type loss struct {
	epoch uint32
	first uint64
}

const (
	maxWaitingBytes = 16 << 20
	maxLetters      = 256 // in a round trip
	publishTime     = time.Second
	publishPause    = 100 * time.Millisecond // after a failure
)

func newOutbox(client goredis.UniversalClient, name string, sharded bool) *outbox {
	return &outbox{client: client, name: name, sharded: sharded, numbers: numbers{channels: map[string]*counter{}}, owed: map[string]loss{}}
}

// add takes what is to be published, and returns at once.
func (o *outbox) add(channel string, e envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	numbered := e.kind == kindPacket
	if numbered {
		o.numbers.stamp(channel, &e)
	}
	if o.bytes+len(e.packet) > maxWaitingBytes {
		if numbered {
			o.owe(channel, loss{e.epoch, e.number})
		}
		return
	}
	o.put(channel, numbered, &e)
}

func (o *outbox) put(channel string, numbered bool, e *envelope) {
	e.from = o.name
	text := e.append(nil)
	o.waiting = append(o.waiting, letter{channel, numbered, loss{e.epoch, e.number}, text})
	o.bytes += len(text)
	if !o.running {
		o.running = true
		go o.run()
	}
}

// closeWith is close, with a last letter that nothing follows.
func (o *outbox) closeWith(channel string, e envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(channel, false, &e)
	o.closed = true
}

// close lets what waits go out, and takes no more.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

func (o *outbox) run() {
	for {
		letters := o.take()
		if len(letters) == 0 {
			return
		}
		if failed := o.publish(letters); len(failed) > 0 {
			o.lose(failed)
			time.Sleep(publishPause)
			continue
		}
		o.pay()
	}
}

func (o *outbox) take() []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.waiting), maxLetters)
	if n == 0 {
		o.running, o.waiting = false, nil
		return nil
	}
	letters := o.waiting[:n:n]
	o.waiting = o.waiting[n:]
	for _, l := range letters {
		o.bytes -= len(l.text)
	}
	return letters
}

// publish returns the letters that may not have gone out. They are not sent again:
// nobody can tell from an error whether they have.
func (o *outbox) publish(letters []letter) (failed []letter) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTime)
	defer cancel()
	pipe := o.client.Pipeline()
	results := make([]*goredis.IntCmd, len(letters))
	for i, l := range letters {
		if o.sharded {
			results[i] = pipe.SPublish(ctx, l.channel, l.text)
		} else {
			results[i] = pipe.Publish(ctx, l.channel, l.text)
		}
	}
	_, _ = pipe.Exec(ctx) // the results know
	for i, result := range results {
		if result.Err() != nil {
			failed = append(failed, letters[i])
		}
	}
	return failed
}

func (o *outbox) lose(letters []letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range letters {
		if l.numbered {
			o.owe(l.channel, l.loss)
		}
	}
}

// owe must be called with the lock held.
func (o *outbox) owe(channel string, l loss) {
	if known, ok := o.owed[channel]; ok && known.epoch == l.epoch {
		l.first = min(l.first, known.first)
	}
	o.owed[channel] = l
}

// pay tells those who have missed something that they have.
func (o *outbox) pay() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for channel, l := range o.owed {
		if c := o.numbers.channels[channel]; c == nil || c.epoch != l.epoch {
			o.numbers.stamp(channel, &envelope{}) // whose first number nobody will hear
			l.first = 0
		}
		e := envelope{kind: kindTick, packet: binary.AppendUvarint(nil, l.first)}
		o.numbers.stamp(channel, &e)
		o.put(channel, true, &e)
	}
	clear(o.owed)
}
