package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// A stormClient is a client that returns to its room after its connection has ended.
type stormClient struct {
	*client
	to     *process // its server, if there are several
	topic  string
	token  string // of its session, if it has one
	epoch  string
	offset int // of the last publication that it has received
}

// A stormProtocol is what the clients of a server say and read.
type stormProtocol struct {
	contender string // whose hello the clients send
	recovers  bool   // whether the server keeps a history; otherwise only leave is called

	greet     func(c *stormClient) error                  // completes the first handshake; nil if nothing is missing
	subscribe func(c *stormClient) error                  // subscribes to the room of the client
	resume    func(c *stormClient, offset int) error      // the same on a new connection, until it has everything up to offset
	next      func(c *stormClient) error                  // receives publications, and resumes if the server asks for it
	leave     func(c *stormClient) (time.Duration, error) // reads until the server asks the client to leave, and returns when it may return
}

// enter opens the first connection of a client.
func (c *stormClient) enter(p *process, protocol stormProtocol) error {
	if err := c.open(p, protocol); err != nil || protocol.greet == nil {
		return err
	}
	return protocol.greet(c)
}

func (c *stormClient) open(p *process, protocol stormProtocol) (err error) {
	c.client, err = dial(p, find(contenders, protocol.contender))
	return err
}

// move waits until the server asks the client to leave, and returns when the other one has it.
func (c *stormClient) move(to *process, protocol stormProtocol, offset int) error {
	delay, err := protocol.leave(c)
	if err != nil {
		return err
	}
	if stormSpread > 0 {
		delay = rand.N(stormSpread)
	}
	time.Sleep(delay)
	defer c.close() // evaluated now: the client stays connected until the other server has it
	if err := c.open(to, protocol); err != nil {
		return err
	}
	if !protocol.recovers {
		return protocol.greet(c)
	}
	return protocol.resume(c, offset)
}

// send sends a message.
func (c *client) send(format string, args ...any) error {
	_, err := c.conn.Write(masked(fmt.Sprintf(format, args...)))
	return err
}

// A closedError is the close frame of a server.
type closedError struct {
	code   uint16
	reason string
}

func (e *closedError) Error() string {
	return fmt.Sprintf("the server closed the connection: %d %s", e.code, e.reason)
}

// text returns the next message. It is valid until the next call.
func (c *client) text() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:2]); err != nil {
		return nil, err
	}
	n := int(head[1])
	switch n {
	case 126:
		if _, err := io.ReadFull(c.r, head[2:]); err != nil {
			return nil, err
		}
		n = int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		return nil, errors.New("frame is longer than 64 KiB")
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return nil, err
	}
	switch op := head[0] & 0x0f; {
	case op == 8 && n >= 2:
		return nil, &closedError{binary.BigEndian.Uint16(payload), string(payload[2:])}
	case op == 8:
		return nil, io.EOF
	case op > 8:
		return c.text()
	}
	return payload, nil
}

// receive checks that a publication follows the one before.
func (c *stormClient) receive(publication []byte) error {
	offset, ok := lastOffset(publication)
	if !ok {
		return fmt.Errorf("%s has no offset", publication)
	}
	return c.follow(offset)
}

// follow moves the position of the client by one.
func (c *stormClient) follow(offset int) error {
	if offset != c.offset+1 {
		return fmt.Errorf("received the publication %d after %d", offset, c.offset)
	}
	c.offset = offset
	return nil
}

// lastOffset returns the last member offset of a message.
func lastOffset(text []byte) (int, bool) {
	const member = `"offset":`
	i := bytes.LastIndex(text, []byte(member))
	if i < 0 {
		return 0, false
	}
	digits := text[i+len(member):]
	digits = digits[:len(digits)-len(bytes.TrimLeft(digits, "0123456789"))]
	n, err := strconv.Atoi(string(digits))
	return n, err == nil
}

// retryDelay closes a connection that the server has ended, and returns when the client may return.
func retryDelay(c *stormClient, err error) (time.Duration, error) {
	c.close() // some servers wait for it
	var closed *closedError
	if !errors.As(err, &closed) && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return rand.N(time.Second), nil
}

// greetBun greets Bun as clients of Penstock greet it. What is published meanwhile has no position.
func greetBun(c *stormClient) error {
	text, err := []byte(nil), c.send(`{"type":"$ws:hello","meta":{"correlationId":"hello"},"payload":{"session":false}}`)
	for err == nil && !bytes.HasPrefix(text, []byte(`{"type":"$ws:welcome"`)) {
		text, err = c.text()
	}
	return err
}

// bunProtocol is that of Bun, whose server keeps no history.
var bunProtocol = stormProtocol{contender: "bun", greet: greetBun, leave: func(c *stormClient) (time.Duration, error) {
	for {
		if _, err := c.text(); err != nil {
			return retryDelay(c, err)
		}
	}
}}

// receiveLines receives the publications of a frame with one on each line.
func (c *stormClient) receiveLines(text []byte) error {
	for line := range bytes.Lines(text) {
		if err := c.receive(line); err != nil {
			return err
		}
	}
	return nil
}
