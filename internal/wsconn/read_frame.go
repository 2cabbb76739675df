package wsconn

import "io"

// A frameReader parses frames. Every connection has one, so it is small.
type frameReader struct {
	failed   error // found while the connection was being parked
	controls controlLimit
	inflates bool // compression was negotiated

	// These fields describe the current message.
	inMessage bool
	binary    bool
	deflated  bool
	last      bool           // the current frame is its last
	pos       uint8          // of the next payload byte in the key
	emptyRun  uint16         // consecutive data frames without data
	key       [keyBytes]byte // of the current frame
	left      uint64         // payload bytes of the current frame that have not been read
}

// maxEmptyFrames bounds data frames without data that follow each other. Each costs
// work and does not count for MaxMessageBytes.
const maxEmptyFrames = 1 << 14

var errEmptyFrames = &violation{codePolicyViolation, "too many frames without data"}

// beginMessage consumes control frames and then the header of a message's first frame.
// It returns false if only control frames have arrived and the connection can be parked.
func (c *Conn) beginMessage() (bool, error) {
	for {
		h, err := c.readHeader(true)
		if err != nil {
			return false, err
		}
		if h.opcode < opClose {
			return true, c.beginFrame(h)
		}
		if err := c.readControl(h); err != nil {
			return false, err
		}
		if err := c.disarmMessageTimeout(); err != nil {
			return false, err
		}
		if c.polled && c.sock.chunk == nil {
			return false, nil
		}
	}
}

// beginFrame starts a data frame.
func (c *Conn) beginFrame(h header) error {
	f := &c.frames
	if h.opcode != opContinuation {
		f.binary, f.deflated = h.opcode == opBinary, h.deflated
	}
	f.inMessage, f.last = true, h.fin
	f.left, f.key, f.pos = h.length, h.key, 0
	switch {
	case !f.deflated && h.length > uint64(c.opts.MaxMessageBytes):
		return ErrTooBig
	case h.length > 0:
		f.emptyRun = 0
		return nil
	}
	if f.emptyRun++; f.emptyRun > maxEmptyFrames {
		return errEmptyFrames
	}
	return nil
}

// readHeader consumes the header of a frame. Every byte is checked as soon as it has
// arrived. idle means that the frame may begin a message.
func (c *Conn) readHeader(idle bool) (header, error) {
	var b [maxClientHeaderBytes]byte
	if err := c.readFull(b[:1], idle); err != nil {
		return header{}, err
	}
	if err := c.frames.checkFirstByte(b[0]); err != nil {
		return header{}, err
	}
	if err := c.readFull(b[1:2], false); err != nil {
		return header{}, err
	}
	n, err := headerBytes(b[0], b[1])
	if err != nil {
		return header{}, err
	}
	if err := c.readFull(b[2:n-keyBytes], false); err != nil {
		return header{}, err
	}
	h, err := parseHeader(b[:n-keyBytes])
	if err != nil {
		return header{}, err
	}
	return h, c.readFull(h.key[:], false)
}

// checkFirstByte checks the first byte of a frame, also that the frame may follow the one
// before.
func (f *frameReader) checkFirstByte(b0 byte) error {
	opcode := b0 & 0x0f
	reserved := b0 & rsvBits
	if f.inflates && (opcode == opText || opcode == opBinary) {
		reserved &^= rsv1
	}
	switch {
	case reserved != 0:
		return protocolError("a reserved bit is set")
	case opcode > opBinary && opcode < opClose, opcode > opPong:
		return protocolError("a reserved opcode")
	case opcode >= opClose && b0&finBit == 0:
		return protocolError("a control frame must not be fragmented")
	case opcode >= opClose: // a complete control frame may be anywhere
		return nil
	case f.inMessage && opcode != opContinuation:
		return protocolError("a message inside a message")
	case !f.inMessage && opcode == opContinuation:
		return protocolError("a continuation of no message")
	}
	return nil
}

// readFull consumes len(p) bytes. idle means that no part of a message has arrived.
func (c *Conn) readFull(p []byte, idle bool) error {
	for n := 0; n < len(p); {
		if c.sock.chunk == nil {
			if err := c.fill(idle && n == 0); err != nil {
				return err
			}
		}
		copied := copy(p[n:], c.sock.unread())
		c.sock.skip(copied)
		n += copied
	}
	return nil
}

// A payload reads the payload of the current message, across its frames, and handles
// the control frames between them. It returns io.EOF at the end of the message.
type payload struct{ c *Conn }

// Read implements [io.Reader].
func (r payload) Read(p []byte) (int, error) {
	c, f := r.c, &r.c.frames
	for f.left == 0 {
		if f.last {
			f.inMessage = false
			return 0, io.EOF
		}
		h, err := c.readHeader(false)
		switch {
		case err != nil:
			return 0, err
		case h.opcode < opClose:
			err = c.beginFrame(h)
		default:
			err = c.readControl(h)
		}
		if err != nil {
			return 0, err
		}
	}
	if c.sock.chunk == nil {
		if err := c.fill(false); err != nil {
			return 0, err
		}
	}
	unread := c.sock.unread()
	n := int(min(uint64(len(p)), uint64(len(unread)), f.left))
	mask(p[:n], unread[:n], f.key, int(f.pos))
	c.sock.skip(n)
	f.left -= uint64(n)
	f.pos = uint8((int(f.pos) + n) % keyBytes)
	return n, nil
}
