package handshake

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// RefuseBody refuses a request with a body. An upgrade would have to wait for it, and
// RFC 6455 gives it no meaning. In HTTP/2, it may be a connection (RFC 8441), which net/http
// cannot hijack.
func RefuseBody(w http.ResponseWriter, req *http.Request) error {
	if req.Method == http.MethodConnect && req.ProtoMajor > 1 {
		return errors.Errorf(errors.Unimplemented, "this server does not support WebSocket over HTTP/2")
	}
	if req.ContentLength == 0 && len(req.TransferEncoding) == 0 {
		return nil
	}
	// The server must not wait for the rest of the body either.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // if unsupported, the server's own timeout applies
	return errors.Errorf(errors.InvalidArgument, "a handshake must not have a body")
}

// WriteErrorHeader writes the status and the header of the answer to a refused request, whose body is the
// error as JSON.
func WriteErrorHeader(w http.ResponseWriter, req *http.Request, code errors.Code, retryAfter time.Duration) {
	closeAfterAnswer(w, req)
	status := Status(code)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.FormatInt(retrySeconds(retryAfter), 10))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
}

// closeAfterAnswer makes the server close the connection of a request that it rejects. A proxy may pass
// on what follows without another look, and the client may take that for WebSocket frames. In HTTP/2,
// the connection serves other requests, too.
func closeAfterAnswer(w http.ResponseWriter, req *http.Request) {
	if req.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// retrySeconds returns the value of the header Retry-After (RFC 9110, section 10.2.3), at
// least 1: with 0, clients would reconnect in a busy loop.
func retrySeconds(d time.Duration) int64 {
	if d == errors.Never {
		return int64(24 * time.Hour / time.Second)
	}
	return max(1, int64(math.Ceil(d.Seconds())))
}

// Status maps the code of an error to the status of a rejected request.
func Status(code errors.Code) int {
	switch code {
	case errors.Unauthenticated:
		return http.StatusUnauthorized
	case errors.PermissionDenied:
		return http.StatusForbidden
	case errors.ResourceExhausted:
		return http.StatusTooManyRequests
	case errors.Unavailable:
		return http.StatusServiceUnavailable
	case errors.InvalidArgument:
		return http.StatusBadRequest
	case errors.Unimplemented:
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}
