package wsconn

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// A refusedUpgrade says why a request is not a valid handshake.
type refusedUpgrade struct {
	status int
	text   string
}

// checkUpgrade returns the key of a handshake (RFC 6455, section 4.2.1), or why the request is none.
func checkUpgrade(r *http.Request) (key string, refused *refusedUpgrade) {
	h := r.Header
	switch {
	case !r.ProtoAtLeast(1, 1):
		return "", refuseUpgrade(http.StatusUpgradeRequired, "the handshake must be of HTTP/1.1, and is of %q", r.Proto)
	case element(h["Connection"], "Upgrade") == "":
		return "", refuseUpgrade(http.StatusUpgradeRequired, "the header Connection must contain Upgrade, and is %q", h.Get("Connection"))
	case element(h["Upgrade"], "websocket") == "":
		return "", refuseUpgrade(http.StatusUpgradeRequired, "the header Upgrade must contain websocket, and is %q", h.Get("Upgrade"))
	case r.Method != http.MethodGet:
		return "", refuseUpgrade(http.StatusMethodNotAllowed, "the method of the handshake must be GET, and is %q", r.Method)
	}
	if version := h["Sec-Websocket-Version"]; len(version) != 1 || version[0] != "13" {
		return "", refuseUpgrade(http.StatusBadRequest, "the header Sec-WebSocket-Version must be 13, and is %q", version)
	}
	keys := h["Sec-Websocket-Key"]
	if len(keys) != 1 {
		return "", refuseUpgrade(http.StatusBadRequest, "the header Sec-WebSocket-Key must appear once, and appears %d times", len(keys))
	}
	key = strings.TrimSpace(keys[0])
	var random [18]byte // a key that is too long fills more than 16
	if n, err := base64.StdEncoding.Decode(random[:], []byte(key[:min(len(key), 24)])); err != nil || n != 16 || len(key) != 24 {
		return "", refuseUpgrade(http.StatusBadRequest, "the header Sec-WebSocket-Key must be 16 bytes in Base64, and is %q", key)
	}
	return key, nil
}

func refuseUpgrade(status int, format string, args ...any) *refusedUpgrade {
	return &refusedUpgrade{status, fmt.Sprintf(format, args...)}
}

// answer answers the request. Nothing may follow on the connection.
func (u *refusedUpgrade) answer(w http.ResponseWriter) {
	h := w.Header()
	switch u.status {
	case http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
	case http.StatusBadRequest:
		h.Set("Sec-WebSocket-Version", "13")
	}
	h.Set("Connection", "close")
	http.Error(w, u.text, u.status)
}

// element returns an element of lists in headers as the client has spelled it, or "" if there is none.
func element(values []string, token string) string {
	for _, value := range values {
		for e := range strings.SplitSeq(value, ",") {
			if e = strings.TrimSpace(e); strings.EqualFold(e, token) {
				return e
			}
		}
	}
	return ""
}
