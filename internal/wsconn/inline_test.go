package wsconn_test

import (
	"net/http"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// An inlineHandler answers messages on the goroutine of an event loop, as the router does.
type inlineHandler struct {
	noopHandler

	conn   *wsconn.Conn
	answer func(wsconn.Message) string
	ended  func()
}

// serveInline upgrades a request and answers messages. It calls ended when the connection has
// ended, unless it returns an error.
func serveInline(w http.ResponseWriter, r *http.Request, opts *wsconn.Options, answer func(wsconn.Message) string, ended func()) error {
	h := &inlineHandler{answer: answer, ended: ended}
	var err error
	if h.conn, err = wsconn.Accept(w, r, "", opts, h); err != nil {
		return err
	}
	go h.Serve() // not called by the loop, so that it does not return true
	return nil
}

func (h *inlineHandler) Serve() (paused bool) {
	for {
		switch h.conn.Park() {
		case wsconn.Parked:
			return false
		case wsconn.Paused:
			return true
		}
		msg, err := h.conn.Read(unlimited)
		if err != nil {
			h.conn.Release()
			h.ended()
			return false
		}
		if msg.Buffer != nil {
			_ = send(h.conn, h.answer(msg)) // if it fails, so does the next read
			msg.Release()
		}
	}
}
