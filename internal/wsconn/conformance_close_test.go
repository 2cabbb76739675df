package wsconn_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// closePayload encodes the payload of a close frame.
func closePayload(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// TestConformance_Close is group 7.
func TestConformance_Close(t *testing.T) {
	t.Parallel()
	normal := clientFrame(fin|closing, closePayload(1000, ""))
	cases := []wireCase{
		{name: "after a message", frames: [][]byte{clientFrame(fin|text, "a"), normal}, want: echoes("a"), code: 1000},
		{name: "after a big message", frames: [][]byte{clientFrame(fin|text, repeated(256<<10)), normal}, want: echoes(repeated(256 << 10)), code: 1000},
		{
			name:   "after a ping",
			frames: [][]byte{clientFrame(fin|ping, "p"), normal},
			want:   []serverFrame{{fin | pong, "p"}},
			code:   1000,
		},
		{name: "two close frames", frames: [][]byte{normal, normal}, code: 1000},
		{name: "two close frames with two codes", frames: [][]byte{normal, clientFrame(fin|closing, closePayload(1001, ""))}, code: 1000},
		{name: "a ping behind", frames: [][]byte{normal, clientFrame(fin|ping, "p")}, code: 1000},
		{name: "a message behind", frames: [][]byte{normal, clientFrame(fin|text, "a")}, code: 1000},
		{name: "an invalid frame behind", frames: [][]byte{normal, clientFrame(fin|0x70|3, "a")}, code: 1000},
		{
			name:   "inside a fragmented message",
			frames: [][]byte{clientFrame(text, "a"), normal, clientFrame(fin|continuation, "b")},
			code:   1000,
		},
		{
			name:   "many messages behind",
			frames: [][]byte{clientFrame(fin|text, "a"), normal, clientFrame(fin|text, repeated(256<<10)), clientFrame(fin|ping, "p")},
			want:   echoes("a"),
			code:   1000,
		},
		{name: "empty", frames: [][]byte{clientFrame(fin|closing, "")}, code: noCode},
		{name: "1 byte", frames: [][]byte{clientFrame(fin|closing, "\x03")}, code: 1002},
		{name: "with a reason", frames: [][]byte{clientFrame(fin|closing, closePayload(1000, "Hello, κόσμε!"))}, code: 1000},
		{name: "125 bytes", frames: [][]byte{clientFrame(fin|closing, closePayload(1000, repeated(123)))}, code: 1000},
		{name: "126 bytes", frames: [][]byte{clientFrame(fin|closing, closePayload(1000, repeated(124)))}, code: 1002},
		{name: "fragmented", frames: [][]byte{clientFrame(closing, closePayload(1000, ""))}, code: 1002},
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		cases = append(cases, closeCases(code, code)...)
	}
	for _, code := range []int{0, 1, 500, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases = append(cases, closeCases(code, 1002)...)
	}
	for _, reason := range []string{
		"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", "a\xff\xfe", "\x80", "\xc0\x80", "\xf4\x90\x80\x80", "cut \xce", "cut \xf0\x9f\x98",
	} {
		cases = append(cases, wireCase{
			name:   fmt.Sprintf("reason %+q", reason),
			frames: [][]byte{clientFrame(fin|closing, closePayload(1000, reason))},
			code:   1007,
		})
	}
	runWireCases(t, len(deliveries), cases)
}

func closeCases(sent, want int) []wireCase {
	return []wireCase{
		{name: fmt.Sprintf("code %d", sent), frames: [][]byte{clientFrame(fin|closing, closePayload(sent, ""))}, code: want},
		{
			name:   fmt.Sprintf("code %d with a reason", sent),
			frames: [][]byte{clientFrame(fin|closing, closePayload(sent, "reason"))},
			code:   want,
		},
	}
}

// TestConformance_ServerClosesTheConnectionFirst is RFC 6455, section 7.1.1: after the closing
// handshake, the server closes the TCP connection at once, in both directions.
func TestConformance_ServerClosesTheConnectionFirst(t *testing.T) {
	t.Parallel()
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			addr := tr.serveEcho(t).Listener.Addr().String()
			p, _ := dialPeer(t, addr, tr.secure, "")
			_, err := p.Write(clientFrame(fin|closing, closePayload(1000, "")))
			require.NoError(t, err)
			got, err := p.read()
			require.NoError(t, err)
			require.Equal(t, serverFrame{fin | closing, closePayload(1000, "")}, got)
			require.NoError(t, p.readEnd())
			for err == nil { // until the kernel resets the connection, because the server does not read
				_, err = p.Write(clientFrame(fin|text, "behind the end"))
			}
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}
