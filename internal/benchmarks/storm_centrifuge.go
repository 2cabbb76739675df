package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// centrifugeStorm is the protocol of centrifuge.
type centrifugeStorm struct{}

func centrifugeProtocol() stormProtocol {
	p := centrifugeStorm{}
	return stormProtocol{contender: "centrifuge", recovers: true, subscribe: p.subscribe, resume: p.resume, next: p.next, leave: p.leave}
}

func (p centrifugeStorm) subscribe(c *stormClient) error {
	if err := c.send(`{"id":2,"subscribe":{"channel":%q,"recoverable":true,"positioned":true}}`, c.topic); err != nil {
		return err
	}
	return p.subscribed(c)
}

// subscribed reads the answer to a subscription, and the publications that follow it in the same frame.
func (centrifugeStorm) subscribed(c *stormClient) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	var m struct {
		Subscribe *struct {
			Epoch        string
			Offset       int
			Recovered    bool
			Publications []struct{ Offset int }
		}
	}
	answer, rest, _ := bytes.Cut(text, []byte{'\n'})
	if err := json.Unmarshal(answer, &m); err != nil || m.Subscribe == nil {
		return fmt.Errorf("the server answered %s: %w", text, err)
	}
	returns := c.epoch != ""
	c.epoch = m.Subscribe.Epoch
	switch {
	case !returns:
		c.offset = m.Subscribe.Offset
	case !m.Subscribe.Recovered:
		return fmt.Errorf("the client could not recover: %s", text)
	default:
		for _, publication := range m.Subscribe.Publications {
			if err := c.follow(publication.Offset); err != nil {
				return err
			}
		}
	}
	return c.receiveLines(rest)
}

func (p centrifugeStorm) resume(c *stormClient, offset int) error {
	if err := c.send(`{"id":2,"subscribe":{"channel":%q,"recover":true,"recoverable":true,"positioned":true,"epoch":%q,"offset":%d}}`, c.topic, c.epoch, c.offset); err != nil {
		return err
	}
	if err := p.subscribed(c); err != nil {
		return err
	}
	for c.offset < offset {
		if err := p.next(c); err != nil {
			return err
		}
	}
	return nil
}

// next receives the publications of a frame. A client whose position is not that of the server
// subscribes again at once, as the client libraries of centrifuge do.
func (p centrifugeStorm) next(c *stormClient) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	if bytes.HasPrefix(text, []byte(`{"push":`)) && bytes.Contains(text, []byte(`"unsubscribe":{"code":2500`)) {
		return p.resume(c, c.offset)
	}
	return c.receiveLines(text)
}

func (p centrifugeStorm) leave(c *stormClient) (time.Duration, error) {
	for {
		if err := p.next(c); err != nil {
			return retryDelay(c, err)
		}
	}
}
