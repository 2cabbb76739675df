//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// Types of TLS records (RFC 8446, section 5.1) and of what the tests send in them.
const (
	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23

	alertCloseNotify       = 0
	alertUnexpectedMessage = 10
	alertBadRecordMAC      = 20
	alertRecordOverflow    = 22
	alertHandshakeFailure  = 40
	alertUserCanceled      = 90

	handshakeKeyUpdate = 24
)

// A recordConn is a TLS 1.3 client that builds its records itself, after crypto/tls has performed the
// handshake.
type recordConn struct {
	net.Conn

	in, out direction
	unread  []byte
	updates int // key updates that have been received
}

// A direction protects or opens records (RFC 8446, section 5.2) with TLS_AES_128_GCM_SHA256.
type direction struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	count  uint64
}

func (d *direction) setSecret(secret []byte) {
	d.secret, d.count = secret, 0
	block, _ := aes.NewCipher(expandLabel(secret, "key", 16))
	d.aead, _ = cipher.NewGCM(block)
	d.iv = expandLabel(secret, "iv", 12)
}

// update follows a key update (RFC 8446, section 7.2).
func (d *direction) update() { d.setSecret(expandLabel(d.secret, "traffic upd", sha256.Size)) }

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
func expandLabel(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(append(info, byte(len(label))), label...), 0)
	key, _ := hkdf.Expand(sha256.New, secret, string(info), n)
	return key
}

func (d *direction) nonce() []byte {
	nonce := bytes.Clone(d.iv)
	tail := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^d.count)
	d.count++
	return nonce
}

// record returns the next record of the client, with bytes of padding.
func (c *recordConn) record(kind byte, content []byte, padding int) []byte {
	inner := append(append(bytes.Clone(content), kind), make([]byte, padding)...)
	head := []byte{recordApplication, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(inner)+c.out.aead.Overhead()))
	return c.out.aead.Seal(head, c.out.nonce(), inner, head)
}

// alert returns an alert as a record.
func (c *recordConn) alert(level, description byte) []byte {
	return c.record(recordAlert, []byte{level, description}, 0)
}

// message returns a text message as a record.
func (c *recordConn) message(payload string) []byte {
	return c.record(recordApplication, clientFrame(fin|text, payload), 0)
}

func (c *recordConn) Write(p []byte) (int, error) {
	return c.Conn.Write(c.record(recordApplication, p, 0))
}

// An alertError is a received alert, except close_notify, which is io.EOF.
type alertError byte

var errNoCloseNotify = errors.New("the stream ends without close_notify")

func (e alertError) Error() string { return fmt.Sprintf("alert %d", byte(e)) }

// Read returns application data. It follows key updates.
func (c *recordConn) Read(p []byte) (int, error) {
	for len(c.unread) == 0 {
		kind, content, err := c.readRecord()
		switch {
		case err == io.EOF: //nolint:errorlint // not wrapped
			return 0, errNoCloseNotify
		case err != nil:
			return 0, err
		case kind == recordApplication:
			c.unread = content
		case kind == recordHandshake && content[0] == handshakeKeyUpdate:
			c.in.update()
			c.updates++
		case kind == recordAlert && content[1] == alertCloseNotify:
			return 0, io.EOF
		case kind == recordAlert:
			return 0, alertError(content[1])
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func (c *recordConn) readRecord() (kind byte, content []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(c.Conn, body); err != nil {
		return 0, nil, err
	}
	inner, err := c.in.aead.Open(nil, c.in.nonce(), body, head)
	if err != nil {
		return 0, nil, err
	}
	inner = bytes.TrimRight(inner, "\x00")
	return inner[len(inner)-1], inner[:len(inner)-1], nil
}

// dialRecords opens a TLS connection without the WebSocket handshake.
func dialRecords(t *testing.T, conn net.Conn) *recordConn {
	t.Helper()
	var keys bytes.Buffer
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, KeyLogWriter: &keys})
	require.NoError(t, client.Handshake())
	if client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("this processor has no AES, so another cipher was selected")
	}
	c := &recordConn{Conn: conn}
	for line := range bytes.Lines(keys.Bytes()) {
		var label, random, secret string
		_, err := fmt.Sscan(string(line), &label, &random, &secret)
		require.NoError(t, err)
		key, err := hex.DecodeString(secret)
		require.NoError(t, err)
		switch label {
		case "CLIENT_TRAFFIC_SECRET_0":
			c.out.setSecret(key)
		case "SERVER_TRAFFIC_SECRET_0":
			c.in.setSecret(key)
		}
	}
	return c
}
