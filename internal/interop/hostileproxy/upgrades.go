package hostileproxy

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// RefuseUpgrades answers upgrades with 403.
func RefuseUpgrades(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUpgrade(r) {
			http.Error(w, "WebSocket is not permitted here", http.StatusForbidden)
			return
		}
		forward.ServeHTTP(w, r)
	})
}

// DelayUpgrades forwards upgrades after a delay.
func DelayUpgrades(delay time.Duration) Fault {
	return func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isUpgrade(r) {
				select {
				case <-time.After(delay):
				case <-r.Context().Done():
					return
				}
			}
			forward.ServeHTTP(w, r)
		})
	}
}

// ResetUpgraded resets connections some time after the server has accepted the upgrade.
func ResetUpgraded(after time.Duration) Fault {
	return func(forward http.Handler) http.Handler {
		return wrapUpgraded(forward, func(conn net.Conn) net.Conn {
			time.AfterFunc(after, func() {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			})
			return conn
		})
	}
}

// MuteUpgraded passes on that the server has accepted the upgrade, and nothing more in either direction.
func MuteUpgraded(forward http.Handler) http.Handler {
	return wrapUpgraded(forward, func(conn net.Conn) net.Conn { return noDown{noUp{conn}} })
}

// OnlyUp passes on what clients send over upgraded connections, and nothing that the server sends.
func OnlyUp(forward http.Handler) http.Handler {
	return wrapUpgraded(forward, func(conn net.Conn) net.Conn { return noDown{conn} })
}

// OnlyDown passes on what the server sends over upgraded connections, and nothing that clients send.
func OnlyDown(forward http.Handler) http.Handler {
	return wrapUpgraded(forward, func(conn net.Conn) net.Conn { return noUp{conn} })
}

// noUp discards what the client sends.
type noUp struct{ net.Conn }

func (c noUp) Read(b []byte) (int, error) {
	for {
		if _, err := c.Conn.Read(b); err != nil {
			return 0, err
		}
	}
}

// noDown discards what the server sends.
type noDown struct{ net.Conn }

func (noDown) Write(b []byte) (int, error) { return len(b), nil }

// wrapUpgraded wraps connections to clients after an upgrade. The answer of the server to the upgrade passes
// unchanged: httputil.ReverseProxy writes it to the bufio.ReadWriter.
func wrapUpgraded(forward http.Handler, wrap func(net.Conn) net.Conn) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forward.ServeHTTP(hijacker{w, wrap}, r)
	})
}

type hijacker struct {
	http.ResponseWriter
	wrap func(net.Conn) net.Conn
}

func (h hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return h.wrap(conn), rw, nil
}
