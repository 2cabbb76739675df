package wsconn_test

import (
	"encoding/binary"
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
	runWireCases(t, len(deliveries), wireCases("", listed(t, "close"),
		each(`X%[1]d => %[1]d`, 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999),
		each(`X%[1]d"reason" => %[1]d`, 1000, 1001, 1014, 3000, 4999),
		each(`X%d => 1002`, 0, 1, 500, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535),
		each(`X%d"reason" => 1002`, 0, 999, 1005, 2999, 5000),
		each(`X1000%q => 1007`, "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", "a\xff\xfe", "\x80", "\xc0\x80",
			"\xf4\x90\x80\x80", "cut \xce", "cut \xf0\x9f\x98")))
}

// TestConformance_ServerClosesTheConnectionFirst is RFC 6455, section 7.1.1: after the closing
// handshake, the server closes the TCP connection at once, in both directions.
func TestConformance_ServerClosesTheConnectionFirst(t *testing.T) {
	t.Parallel()
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			addr := tr.serveEcho(t).Listener.Addr().String()
			p := dialPeer(t, addr, tr.secure, "")
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
