package hostileproxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// HoldBodies forwards half of the body of every n-th POST, and holds the rest until the client gives up.
func HoldBodies(n int64) Fault {
	var posts atomic.Int64
	return func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && posts.Add(1)%n == 0 {
				body, err := io.ReadAll(r.Body) // all of it, since net/http notices only then that the client has gone
				if err != nil {
					panic(http.ErrAbortHandler)
				}
				r.Body = &heldBody{Reader: bytes.NewReader(body[:len(body)/2]), ctx: r.Context()}
			}
			forward.ServeHTTP(w, r)
		})
	}
}

// A heldBody has more bytes, which never come.
type heldBody struct {
	*bytes.Reader
	ctx context.Context //nolint:containedctx // of the request to which the body belongs
}

func (b *heldBody) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, context.Cause(b.ctx)
}

func (*heldBody) Close() error { return nil }

// DropResponses ends the connection to the client in place of every n-th response, which the server has sent.
func DropResponses(n int64) Fault {
	var responses atomic.Int64
	return func(forward http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if responses.Add(1)%n == 0 {
				w = dropper{w}
			}
			forward.ServeHTTP(w, r)
		})
	}
}

// A dropper ends the connection where the response would begin.
type dropper struct{ http.ResponseWriter }

func (d dropper) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (dropper) WriteHeader(int) { panic(http.ErrAbortHandler) }
