package inspect

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// maxRequestBytes bounds the body of a request.
const maxRequestBytes = 64 << 10

// setHeaders sets the headers of every answer.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func cutAPI(path string) (action Action, ok bool) {
	name, ok := strings.CutPrefix(path, "/api/")
	return Action(name), ok
}

// An operation is what an action of the API does.
type operation struct {
	changes bool                                     // it is audited
	decode  func(arg json.RawMessage) (*call, error) // returns INVALID_ARGUMENT for what is not understood completely
}

// A call is an operation with its argument.
type call struct {
	arg any
	run func(context.Context) (any, error)
}

// reads returns an operation that changes nothing.
func reads[Arg any](run func(context.Context, Arg) (any, error)) operation {
	return operation{decode: func(text json.RawMessage) (*call, error) {
		arg, err := parse[Arg](text)
		return &call{arg, func(ctx context.Context) (any, error) { return run(ctx, arg) }}, err
	}}
}

// changes returns an operation that changes something.
func changes[Arg any](run func(context.Context, Arg) (any, error)) operation {
	op := reads(run)
	op.changes = true
	return op
}

// serveAPI answers a request of the API.
func (i *Inspector) serveAPI(w http.ResponseWriter, req *http.Request, action Action) {
	op, known := i.operation(action)
	if !known {
		writeError(w, http.StatusNotFound, "there is no such action")
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, http.StatusMethodNotAllowed, "the API accepts POST only")
		return
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeError(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return
	}
	if err := i.origin.Check(req); err != nil {
		writeError(w, http.StatusForbidden, "the request comes from another origin")
		return
	}
	actor, ok := i.authorize(w, req, action)
	if !ok {
		return
	}
	arg, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequestBytes))
	if err != nil || !json.Valid(arg) {
		writeError(w, http.StatusBadRequest, "the body must be JSON of at most 64 KiB")
		return
	}
	called, err := op.decode(arg)
	if err != nil {
		writeError(w, statusOf(err), publicText(err))
		return
	}
	if request, ok := called.arg.(traceRequest); ok && request.Payloads {
		if _, ok := i.authorize(w, req, ViewPayloads); !ok {
			return
		}
	}
	result, err := i.do(req.Context(), action, op.changes, actor, called)
	if err != nil {
		writeError(w, statusOf(err), publicText(err))
		return
	}
	if t, ok := result.(*traceResult); ok {
		if _, err := i.opts.Authorize(req, ViewPayloads); err != nil {
			t.dropPayloads()
		}
	}
	writeJSON(w, http.StatusOK, result)
}

// do runs an operation, between its two entries of the audit log if it changes something.
func (i *Inspector) do(ctx context.Context, action Action, changes bool, actor string, called *call) (any, error) {
	if !changes {
		return called.run(ctx)
	}
	entry := i.newAuditEntry(actor, action, auditTarget(called.arg))
	if err := i.opts.Audit(ctx, entry); err != nil {
		return nil, &errors.Error{Code: errors.Unavailable, Message: "the audit log has refused the action", Err: err}
	}
	result, err := called.run(ctx)
	i.finishAudit(ctx, entry, err)
	return result, err
}

// statusOf returns the HTTP status for an error of an operation.
func statusOf(err error) int {
	switch errors.CodeOf(err) {
	case errors.InvalidArgument:
		return http.StatusBadRequest
	case errors.NotFound:
		return http.StatusNotFound
	case errors.FailedPrecondition, errors.Unimplemented:
		return http.StatusConflict
	case errors.ResourceExhausted:
		return http.StatusTooManyRequests
	case errors.Unavailable:
		return http.StatusServiceUnavailable
	case errors.DeadlineExceeded:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// publicText returns what the page shows of an error: its message, or its code.
func publicText(err error) string {
	if e, ok := errors.AsType[*errors.Error](err); ok && e.Message != "" {
		return e.Message
	}
	return string(errors.CodeOf(err))
}

// parse decodes the argument of an operation. Members that are unknown, that occur twice, or whose case differs are
// mistakes of the caller: another program, such as one that logs requests, could understand something else.
func parse[T any](arg json.RawMessage) (t T, err error) {
	if err := jsonv2.Unmarshal(arg, &t, jsonv2.RejectUnknownMembers(true)); err != nil {
		return t, errors.Errorf(errors.InvalidArgument, "the argument is not valid: %v", err)
	}
	return t, nil
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]string{"error": text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails only if the client has gone
}
