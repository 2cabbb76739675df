package redis

import (
	"context"
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
	owed    map[string]uint32 // channels on which something was lost, and in which epoch
	running bool
	closed  bool
}

type letter struct {
	channel  string
	numbered bool
	epoch    uint32
	text     []byte
}

const (
	maxWaitingBytes = 16 << 20
	maxLetters      = 256 // in a round trip
	publishTime     = time.Second
	publishPause    = 100 * time.Millisecond // after a failure
)

func newOutbox(client goredis.UniversalClient, name string, sharded bool) *outbox {
	return &outbox{client: client, name: name, sharded: sharded, numbers: numbers{channels: map[string]*counter{}}, owed: map[string]uint32{}}
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
			o.owed[channel] = e.epoch
		}
		return
	}
	o.put(channel, numbered, &e)
}

func (o *outbox) put(channel string, numbered bool, e *envelope) {
	e.from = o.name
	text := e.append(nil)
	o.waiting = append(o.waiting, letter{channel, numbered, e.epoch, text})
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
			o.owe(failed)
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

func (o *outbox) owe(letters []letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range letters {
		if l.numbered {
			o.owed[l.channel] = l.epoch
		}
	}
}

// pay tells those who have missed something that they have.
func (o *outbox) pay() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for channel, epoch := range o.owed {
		if c := o.numbers.channels[channel]; c == nil || c.epoch != epoch {
			o.numbers.stamp(channel, &envelope{}) // whose first number nobody will hear
		}
		e := envelope{kind: kindTick}
		o.numbers.stamp(channel, &e)
		o.put(channel, true, &e)
	}
	clear(o.owed)
}
