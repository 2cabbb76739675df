package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// penstockStorm is the protocol of Penstock, with sessions or with subscriptions that return alone.
type penstockStorm struct{ sessions bool }

func penstockProtocol(sessions bool) stormProtocol {
	p := penstockStorm{sessions}
	return stormProtocol{contender: "penstock", recovers: true, greet: p.greet, subscribe: p.subscribe, resume: p.resume, next: p.next, leave: p.leave}
}

// A penstockAnswer has what the answers to greetings and subscriptions contain.
type penstockAnswer struct {
	Type    string
	Payload struct {
		penstockTopic
		Session          struct{ Token string }
		Topics           []penstockTopic
		ReconnectAfterMs int
		Code, Message    string
	}
}

type penstockTopic struct {
	Epoch     string
	Offset    int
	Recovered bool
}

func (p penstockStorm) greet(c *stormClient) error {
	if err := c.send(`{"type":"$ws:hello","meta":{"correlationId":"hello"},"payload":{"session":%t}}`, p.sessions); err != nil {
		return err
	}
	welcome, err := p.await(c, "$ws:welcome")
	if err != nil {
		return err
	}
	c.token = welcome.Payload.Session.Token
	if p.sessions && c.token == "" {
		return errors.New("the server gave no session")
	}
	return nil
}

func (p penstockStorm) subscribe(c *stormClient) error {
	if err := c.send(`{"type":"$ws:subscribe","meta":{"correlationId":"sub"},"payload":{"topic":%q,"positions":true}}`, c.topic); err != nil {
		return err
	}
	answer, err := p.await(c, "$ws:subscribed")
	c.epoch, c.offset = answer.Payload.Epoch, answer.Payload.Offset
	return err
}

func (p penstockStorm) resume(c *stormClient, offset int) error {
	again := p.subscribeAgain
	if p.sessions {
		again = p.resumeSession
	}
	answer, err := again(c)
	if err != nil {
		return err
	}
	if !answer.Recovered {
		return fmt.Errorf("the client could not recover: %+v", answer)
	}
	for c.offset < offset {
		if err := p.next(c); err != nil {
			return err
		}
	}
	return nil
}

func (p penstockStorm) resumeSession(c *stormClient) (topic penstockTopic, err error) {
	const request = `{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":%q,"epoch":%q,"offset":%d}]}}`
	if err := c.send(request, c.token, c.topic, c.epoch, c.offset); err != nil {
		return topic, err
	}
	answer, err := p.await(c, "$ws:resumed")
	if err != nil {
		return topic, err
	}
	if len(answer.Payload.Topics) != 1 {
		return topic, fmt.Errorf("resumed with %+v", answer)
	}
	c.token = answer.Payload.Session.Token
	return answer.Payload.Topics[0], c.send(`{"type":"$ws:ack","meta":{"correlationId":"r"}}`)
}

func (p penstockStorm) subscribeAgain(c *stormClient) (topic penstockTopic, err error) {
	// Only clients that greet are asked to leave.
	if err := c.send(`{"type":"$ws:hello","meta":{"correlationId":"hello"}}`); err != nil {
		return topic, err
	}
	const request = `{"type":"$ws:subscribe","meta":{"correlationId":"sub"},"payload":{"topic":%q,"epoch":%q,"offset":%d}}`
	if err := c.send(request, c.topic, c.epoch, c.offset); err != nil {
		return topic, err
	}
	answer, err := p.await(c, "$ws:subscribed")
	return answer.Payload.penstockTopic, err
}

// next receives a publication.
func (penstockStorm) next(c *stormClient) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	return c.receive(text)
}

// await reads until an answer has arrived.
func (penstockStorm) await(c *stormClient, answer string) (m penstockAnswer, err error) {
	for {
		text, err := c.text()
		if err != nil {
			return m, err
		}
		if bytes.HasPrefix(text, []byte(`{"type":"SAID"`)) {
			if err := c.receive(text); err != nil {
				return m, err
			}
			continue
		}
		m = penstockAnswer{}
		if err := json.Unmarshal(text, &m); err != nil {
			return m, err
		}
		if m.Type == answer {
			return m, nil
		}
		if m.Payload.Code != "" {
			return m, fmt.Errorf("the server answered %s", text)
		}
	}
}

func (p penstockStorm) leave(c *stormClient) (time.Duration, error) {
	m, err := p.await(c, "$ws:goaway")
	return time.Duration(m.Payload.ReconnectAfterMs) * time.Millisecond, err
}
