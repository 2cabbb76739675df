//go:build unix

package faults_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A publisher publishes stories on topics, one at a time. Most of them have an idempotency key, and
// are tried again if they may not have been stored; after some failures it gives up.
type publisher struct {
	name    string
	topics  []string
	rng     *rand.Rand
	numbers map[string]int
	begin   func(topic string, id storyID, at int64)
	end     func(topic string, id storyID, o outcome, p broker.Position)
	publish func(ctx context.Context, m story, key string) (outcome, broker.Position)
}

const attemptTimeout = time.Second

// run publishes, on average once per interval, until stop is closed.
func (p *publisher) run(stop <-chan struct{}, interval time.Duration) {
	p.numbers = map[string]int{}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(p.rng.Int64N(int64(2 * interval)))):
		}
		p.publishNext(stop)
	}
}

func (p *publisher) publishNext(stop <-chan struct{}) {
	topic := p.topics[p.rng.IntN(len(p.topics))]
	p.numbers[topic]++
	m := story{
		Topic: topic, Publisher: p.name, Number: p.numbers[topic], Begun: now(),
		Text: strings.Repeat("x", p.rng.IntN(300)),
	}
	m.Sum = m.checksum()
	id, key := storyID{p.name, m.Number}, ""
	if p.rng.IntN(4) > 0 {
		key = id.String()
	}
	for begun := m.Begun; ; begun = now() {
		p.begin(topic, id, begun)
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		o, position := p.publish(ctx, m, key)
		cancel()
		p.end(topic, id, o, position)
		if o == stored || key == "" || p.rng.IntN(4) == 0 {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(p.rng.IntN(50)) * time.Millisecond):
		}
	}
}

// outcomeOf returns the outcome that an error of Publish means.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return stored
	case errors.CodeOf(err) == errors.OutcomeUnknown:
		return unknown
	default:
		return notStored
	}
}
