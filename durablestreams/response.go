package durablestreams

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
)

const (
	// writeTimeout bounds how long a client may take to accept a response, or an event of SSE.
	writeTimeout = 30 * time.Second

	// sseLifetime is when a response by SSE ends. The client continues in another request, which is
	// authorized again.
	sseLifetime = time.Minute
)

// A response answers one request.
type response struct {
	*handler

	w      http.ResponseWriter
	req    *http.Request
	topic  string
	query  query
	reader reader
	ends   uint32 // handler.ends, read before Authorize was asked
}

// stillAuthorized returns an error if the client has lost access since Authorize was asked. It must be called before
// anything is sent that has waited.
func (r *response) stillAuthorized() error {
	for ends := r.handler.ends.Load(); ends != r.ends; ends = r.handler.ends.Load() {
		r.ends = ends
		if r.authorize(r.req, r.topic) != nil {
			return errUnknown
		}
	}
	return nil
}

// once answers with one page: at once, or when a long poll has waited for it.
func (r *response) once(ctx context.Context) {
	p, err := r.reader.read(ctx, r.maxBytes)
	if err == nil && r.query.live == longPoll && len(p.messages) == 0 && !p.closed {
		p, err = r.poll(ctx, p)
	}
	if denied := r.stillAuthorized(); denied != nil {
		err = denied
	}
	if err != nil {
		r.fail(r.w, r.topic, err)
		return
	}
	h := r.w.Header()
	r.describe(h, p)
	if r.query.live == longPoll {
		h.Set("Stream-Cursor", nextCursor(r.query.cursor))
	}
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(writeTimeout)) // none without a connection
	switch {
	case r.query.live == longPoll && len(p.messages) == 0:
		r.w.WriteHeader(http.StatusNoContent)
		return
	case r.query.from.end:
	default:
		h.Set("Cache-Control", "private, no-cache")
		h.Set("ETag", etag(p))
		if r.req.Header.Get("If-None-Match") == etag(p) {
			r.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", r.format.contentType)
	if r.req.Method == http.MethodHead {
		r.w.WriteHeader(http.StatusOK)
		return
	}
	_, _ = r.w.Write(r.format.body(p.messages)) // the client is gone otherwise
}

// poll waits for messages. It returns the page before them if none arrive in time, or if the server shuts down.
func (r *response) poll(ctx context.Context, before page) (page, error) {
	waiting, cancel := context.WithTimeout(ctx, r.pollTimeout)
	defer cancel()
	for {
		if err := r.reader.wait(waiting); err != nil {
			if waiting.Err() != nil || errors.CodeOf(err) == errors.Unavailable {
				return before, nil
			}
			return page{}, err
		}
		p, err := r.reader.read(ctx, r.maxBytes)
		if err != nil || len(p.messages) > 0 || p.closed {
			return p, err
		}
	}
}

// describe sets the headers about a page.
func (r *response) describe(h http.Header, p page) {
	h.Set("Stream-Next-Offset", p.next.String())
	if p.upToDate {
		h.Set("Stream-Up-To-Date", "true")
	}
	if p.closed {
		h.Set("Stream-Closed", "true")
	}
}

// etag identifies a page: what is between two offsets never changes.
func etag(p page) string {
	tag := p.first.String() + ":" + p.next.String()
	if p.closed {
		tag += ":c"
	}
	return `"` + tag + `"`
}

// A control is the event that follows each data event of SSE.
type control struct {
	NextOffset string `json:"streamNextOffset"`
	Cursor     string `json:"streamCursor,omitzero"`
	UpToDate   bool   `json:"upToDate,omitzero"`
	Closed     bool   `json:"streamClosed,omitzero"`
}

// stream answers by SSE until the stream ends, or sseLifetime has passed, or the server shuts down.
func (r *response) stream(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sseLifetime)
	defer cancel()
	p, err := r.reader.read(ctx, r.maxBytes)
	if denied := r.stillAuthorized(); denied != nil {
		err = denied
	}
	if err != nil {
		r.fail(r.w, r.topic, err)
		return
	}
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx passes each event on at once
	if r.format.base64 {
		h.Set("Stream-SSE-Data-Encoding", "base64")
	}
	for {
		if r.stillAuthorized() != nil || r.send(p) != nil || p.closed { // the client returns, and receives 404
			return
		}
		if p.upToDate {
			waiting, cancel := context.WithTimeout(ctx, r.pollTimeout)
			err = r.reader.wait(waiting)
			timedOut := waiting.Err() != nil
			cancel()
			if err != nil && !timedOut {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if p, err = r.reader.read(ctx, r.maxBytes); err != nil {
			return // the client returns with its offset, and receives the error
		}
	}
}

// send writes a page as events of SSE.
func (r *response) send(p page) error {
	var events []byte
	if len(p.messages) > 0 {
		events = r.format.appendData(events, p.messages)
	}
	c := control{NextOffset: p.next.String(), Closed: p.closed}
	if !p.closed {
		c.Cursor, c.UpToDate = nextCursor(r.query.cursor), p.upToDate
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	events = appendEvent(events, "control", string(text))
	controller := http.NewResponseController(r.w)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // none without a connection
	if _, err := r.w.Write(events); err != nil {
		return err
	}
	return controller.Flush()
}
