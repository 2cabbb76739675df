package deflate

import "encoding/binary"

// Windows are what a connection keeps of compressed messages so that later ones can refer to them (RFC 7692,
// section 7.1.1). Their memory is allocated at the first compressed message of a direction.
type Windows struct {
	sends, receives bool       // the directions in which a window is kept
	sent            SendWindow // belongs to the writing goroutine
	received        Window     // belongs to the goroutine with the right to read
}

// windowBits is the base-2 logarithm of WindowBytes, as clients are asked for it.
const windowBits = 11

// WindowBytes is how far clients may refer back. Messages of the same types repeat each other, so that a window
// of 32 KiB saves hardly more.
const WindowBytes = 1 << windowBits

// MemoryBytes is what the Windows of a connection take: a text in each direction, and the table of a SendWindow.
const MemoryBytes = 2*2*WindowBytes + 2<<hashBits

// ToSend returns the window for messages to the client, or nil if there is none. w may be nil.
func (w *Windows) ToSend() *SendWindow {
	if w == nil || !w.sends {
		return nil
	}
	return &w.sent
}

// ToReceive returns the window for messages from the client, or nil if there is none. w may be nil.
func (w *Windows) ToReceive() *Window {
	if w == nil || !w.receives {
		return nil
	}
	return &w.received
}

// A Window is the end of the uncompressed text of all compressed messages of one direction.
type Window struct {
	text    []byte // the last WindowBytes at least, if there have been as many
	dropped uint16 // bytes that have been removed from text; it may overflow
}

// Text returns what a message may refer to. w may be nil.
func (w *Window) Text() []byte {
	if w == nil {
		return nil
	}
	return w.text
}

// Add adds a part of a message.
func (w *Window) Add(p []byte) {
	if w.text == nil {
		w.text = make([]byte, 0, 2*WindowBytes)
	}
	if n := len(p) - WindowBytes; n >= 0 {
		w.drop(len(w.text))
		p = p[n:]
	} else if len(w.text)+len(p) > cap(w.text) {
		w.drop(len(w.text) - WindowBytes)
	}
	w.text = append(w.text, p...)
}

func (w *Window) drop(n int) {
	w.text = append(w.text[:0], w.text[n:]...)
	w.dropped += uint16(n)
}

// A SendWindow compresses messages with references to earlier ones. A compressor of the library would take 0.8 MB
// for each connection, and one that is shared would read the window again for each message: in both cases,
// that costs more time than the message.
type SendWindow struct {
	Window

	// table has the latest position of four bytes by their hash: their index in text plus dropped, modulo 1<<16.
	// They may be gone from there, so that the bytes are compared.
	table *[1 << hashBits]uint16
}

const hashBits = 11

// lookUp returns how far before the index i of the text its next four bytes may be found, and stores i for them.
func (w *SendWindow) lookUp(i int) (next uint32, distance int) {
	next = binary.LittleEndian.Uint32(w.text[i:])
	place := &w.table[next*2654435761>>(32-hashBits)] // the hash of Knuth
	now := w.dropped + uint16(i)
	distance = int(now - *place)
	*place = now
	return next, distance
}

// Add adds a message that was compressed without the window.
func (w *SendWindow) Add(message []byte) {
	w.begin(message)
	w.index(len(w.text)-min(len(message), WindowBytes), len(w.text))
}

// begin adds a message that has not been indexed yet.
func (w *SendWindow) begin(message []byte) {
	if w.table == nil {
		w.table = new([1 << hashBits]uint16)
	}
	w.Window.Add(message)
}

// index stores some positions from from to to. Since Deflate looks at all positions of a message, it still finds all
// repetitions of at least hashedBytes+indexStep-1 bytes.
func (w *SendWindow) index(from, to int) {
	for i := from; i < min(to, len(w.text)-hashedBytes+1); i += indexStep {
		w.lookUp(i)
	}
}

const indexStep = 4

// hashedBytes is the length of what the table finds, and of the shortest match.
const hashedBytes = 4

// Deflate appends a compressed message to out, which is shorter than WindowBytes, and adds it to the window. It
// uses the fixed codes (RFC 1951, section 3.2.6): other codes would take more space in a short message than
// they save.
func (w *SendWindow) Deflate(out, message []byte) []byte {
	w.begin(message)
	b := bitWriter{out: out}
	b.write(fixedBlock, fixedBlockBits)
	text, i := w.text, len(w.text)-len(message)
	for i <= len(text)-hashedBytes {
		next, distance := w.lookUp(i)
		if distance == 0 || distance > i || binary.LittleEndian.Uint32(text[i-distance:]) != next {
			b.literal(text[i])
			i++
			continue
		}
		n := hashedBytes
		for n < maxMatch && i+n < len(text) && text[i+n] == text[i+n-distance] {
			n++
		}
		b.match(n, distance)
		w.index(i+1, i+n)
		i += n
	}
	for ; i < len(text); i++ {
		b.literal(text[i])
	}
	return b.endBlock()
}

// Forget removes a message that Deflate has just added, because it is not sent compressed.
func (w *SendWindow) Forget(message []byte) { w.text = w.text[:len(w.text)-len(message)] }
