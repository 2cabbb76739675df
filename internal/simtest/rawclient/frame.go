package rawclient

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 prescribes it
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xa
)

// maxFrame bounds what the client reads, so that a wrong length cannot exhaust memory.
const maxFrame = 64 << 20

// An ending says how a connection, or the attempt to open one, has ended.
type ending struct {
	code   int // 1006: without a close frame
	reason string
}

// handshake opens a WebSocket (RFC 6455, section 4.1). A refusal is an ending with the code
// 4000 plus the status, and the body as its reason, as section 6 of the protocol defines it for pages.
// If offer is not empty, it is that of permessage-deflate.
func (k *conn) handshake(ctx context.Context, token, offer string) *ending {
	nc, fail := k.nc, k.fail
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	key := base64.StdEncoding.EncodeToString([]byte("rawclient-key-16"))
	request := "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n"
	if token != "" {
		request += "Authorization: Bearer " + token + "\r\n"
	}
	if offer != "" {
		request += "Sec-WebSocket-Extensions: " + offer + "\r\n"
	}
	if _, err := io.WriteString(nc, request+"\r\n"); err != nil {
		return &ending{code: 1006}
	}
	resp, err := http.ReadResponse(k.r, &http.Request{Method: http.MethodGet})
	if err != nil {
		return &ending{code: 1006}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return refusal(resp, fail)
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	if resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		fail("the handshake has a wrong Sec-WebSocket-Accept")
	}
	if value := resp.Header.Get("Sec-WebSocket-Protocol"); value != "" {
		fail("the handshake has the protocol %q, which was not offered", value)
	}
	k.deflation = acceptDeflate(offer, resp.Header.Get("Sec-WebSocket-Extensions"), fail)
	return nil
}

func refusal(resp *http.Response, fail func(string, ...any)) *ending {
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case 400, 401, 403, 405, 426, 429, 500, 501, 503:
	default:
		fail("the handshake was refused with the status %d", resp.StatusCode)
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		if _, err := strconv.ParseUint(after, 10, 31); err != nil {
			fail("Retry-After is %q, not whole seconds", after)
		}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return &ending{code: 1006}
	}
	if json.Valid(body) { // a middleware in front of the server may send another body
		checkError(body, fail)
	}
	return &ending{code: 4000 + resp.StatusCode, reason: string(body)}
}

// A wireError is a violation of RFC 6455, after which the stream cannot be read any further.
type wireError string

func (e wireError) Error() string { return string(e) }

// rsv1 is set in the first frame of a compressed message (RFC 7692, section 6).
const rsv1 = 0x40

// readFrame reads one frame of the server: complete if fin, which must not be masked. Only the first frame of a message may be
// compressed, and only if the connection may be.
func readFrame(r *bufio.Reader, mayDeflate bool) (op byte, fin, deflated bool, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, false, false, nil, err
	}
	op, fin, deflated = head[0]&0xf, head[0]&0x80 != 0, head[0]&rsv1 != 0
	size := uint64(head[1] & 0x7f)
	switch {
	case head[0]&0x30 != 0 || deflated && (!mayDeflate || op == 0 || op >= opClose):
		return 0, false, false, nil, wireError("a frame has a reserved bit without an extension")
	case head[1]&0x80 != 0:
		return 0, false, false, nil, wireError("a frame of the server is masked")
	case op >= opClose && (!fin || size > 125):
		return 0, false, false, nil, wireError("a control frame is fragmented or has more than 125 bytes")
	case op > 2 && op < opClose || op > opPong:
		return 0, false, false, nil, wireError(fmt.Sprintf("a frame has the reserved opcode %d", op))
	}
	if size >= 126 {
		n := 2
		if size == 127 {
			n = 8
		}
		if _, err := io.ReadFull(r, head[8-n:]); err != nil {
			return 0, false, false, nil, err
		}
		clear(head[:8-n])
		size = binary.BigEndian.Uint64(head[:])
	}
	if size > maxFrame {
		return 0, false, false, nil, wireError("a frame is longer than anything that the server sends")
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(r, payload)
	return op, fin, deflated, payload, err
}

// appendMessage appends a message of the client, which is compressed if the connection may be.
func (k *conn) appendMessage(b, text []byte) []byte {
	if k.deflation != nil {
		if message, compressed := k.deflation.deflate(text); compressed {
			return appendFrame(b, rsv1|opText, message)
		}
	}
	return appendFrame(b, opText, text)
}

// appendFrame appends a whole frame of the client, masked with a key that changes every byte.
func appendFrame(b []byte, op byte, payload []byte) []byte {
	b = append(b, 0x80|op)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n)) //nolint:gosec // the case bounds it
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x1f, 0x5a, 0xc3, 0x99}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i&3])
	}
	return b
}

// read reads messages and control frames until the connection ends, and calls onMessage with each
// message. Whatever follows a close frame is a violation.
func (k *conn) read() ending {
	var message []byte
	open, compressed := false, false // a message has begun
	for {
		op, fin, deflated, payload, err := readFrame(k.r, k.deflation != nil)
		if wire, ok := errors.AsType[wireError](err); ok {
			k.fail("%s", wire)
		}
		if err != nil {
			return ending{code: 1006}
		}
		switch {
		case op == opClose:
			return k.closed(payload)
		case op == opPing:
			k.write(appendFrame(nil, opPong, payload))
			continue
		case op == opPong:
			k.pong(string(payload))
			continue
		case open != (op == 0):
			k.fail("a message begins inside another one, or continues none")
			return ending{code: 1006}
		case op > opText:
			k.fail("the server sent a binary message without a binary format")
		}
		message, open, compressed = append(message, payload...), !fin, compressed || deflated
		if fin {
			if compressed {
				if message, err = k.deflation.inflate(message); err != nil {
					k.fail("%v", err)
					return ending{code: 1006}
				}
				compressed = false
			}
			if !utf8.Valid(message) {
				k.fail("a message is not valid UTF-8")
			}
			k.message(message)
			message = nil
		}
	}
}

// closed answers a close frame, and waits until the server has closed the stream.
func (k *conn) closed(payload []byte) ending {
	end := ending{code: 1005}
	if len(payload) == 1 {
		k.fail("a close frame has one byte")
	} else if len(payload) > 1 {
		end = ending{code: int(binary.BigEndian.Uint16(payload)), reason: string(payload[2:])}
	}
	k.closing(end)
	k.write(appendFrame(nil, opClose, payload[:min(2, len(payload))]))
	if n, _ := io.Copy(io.Discard, k.r); n > 0 {
		k.fail("%d bytes follow the close frame", n)
	}
	return end
}
