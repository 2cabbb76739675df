package wsframe

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 demands it, and not for security
	"encoding/base64"
)

// AcceptKey returns the header Sec-WebSocket-Accept of the answer to a handshake with this
// Sec-WebSocket-Key (section 4.2.2).
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}
