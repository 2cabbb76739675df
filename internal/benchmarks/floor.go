package main

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455, section 4.2.2
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/wire"
)

// The floors are what a server in Go costs at least. They do the same JSON work as the others and
// nothing else: no limits, no queues, no control frames, no fragments, no protection.

// upgrade completes the handshake and returns the connection.
func upgrade(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	key := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455, section 4.2.2
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(key[:]))
	if err == nil && rw.Reader.Buffered() > 0 {
		err = bufio.ErrBufferFull // the client of the benchmarks waits for the response
	}
	return conn, err
}

// answerFrames appends the replies to all whole frames of p, and returns how many bytes these have.
func answerFrames(out, p []byte) (_ []byte, done int, err error) {
	for {
		rest := p[done:]
		if len(rest) < 2 {
			return out, done, nil
		}
		n, head := int(rest[1]&0x7f), 2
		if n == 126 && len(rest) >= 4 {
			n, head = int(binary.BigEndian.Uint16(rest[2:])), 4
		}
		if len(rest) < head+4+n {
			return out, done, nil
		}
		message := rest[head+4 : head+4+n]
		unmask(message, [4]byte(rest[head:]))
		if rest[0] != 0x81 {
			return out, done, io.EOF
		}
		if out, err = appendAnswer(out, message); err != nil {
			return out, done, err
		}
		done += head + 4 + n
	}
}

func unmask(p []byte, key [4]byte) {
	word := uint64(binary.LittleEndian.Uint32(key[:]))
	word |= word << 32
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^word)
	}
	for i := range p {
		p[i] ^= key[i&3]
	}
}

var sayPlan, saidPlan = jsonplan.Of(reflect.TypeFor[Say]()), jsonplan.Of(reflect.TypeFor[Said]())

// appendAnswer appends the frame of the reply to one request.
func appendAnswer(out, data []byte) ([]byte, error) {
	envelope, err := wire.Parse(data)
	if err != nil {
		return nil, err
	}
	if string(envelope.Type) != "SAY" {
		return nil, io.ErrUnexpectedEOF
	}
	var m Say
	if err := sayPlan.Unmarshal(envelope.Payload, &m, false); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	start := len(out)
	out = append(out, 0x81, 126, 0, 0)
	out = append(out, `{"type":"SAID","meta":{"timestamp":`...)
	out = strconv.AppendInt(out, time.Now().UnixMilli(), 10)
	out = append(out, `,"correlationId":"`...)
	out = append(out, envelope.CorrelationID...)
	out = append(out, `"},"payload":`...)
	answer := said(m)
	if out, err = saidPlan.Append(out, &answer); err != nil {
		return nil, err
	}
	out = append(out, '}')
	binary.BigEndian.PutUint16(out[start+2:], uint16(len(out)-start-4)) // replies have 200 bytes
	return out, nil
}

// publishedFrame returns n frames of the published message.
func publishedFrame(n int) []byte {
	var frames []byte
	for range n {
		frames = append(frames, 0x81, 126, byte(len(published)>>8), byte(len(published)))
		frames = append(frames, published...)
	}
	return frames
}
