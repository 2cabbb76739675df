package router

import "fmt"

// A StatusCode is the code of a close frame (RFC 6455, section 7.4). Codes from 4000 to 4999
// are for applications.
type StatusCode int

// Codes that a router sends or reports.
const (
	StatusNormal          StatusCode = 1000
	StatusGoingAway       StatusCode = 1001
	StatusAbnormal        StatusCode = 1006 // the connection ended without a close frame; never sent
	StatusPolicyViolation StatusCode = 1008
	StatusTooBig          StatusCode = 1009
	StatusInternalError   StatusCode = 1011
	StatusServiceRestart  StatusCode = 1012
	StatusTryAgainLater   StatusCode = 1013
)

// Codes that the transport sends or reports, and no application chooses.
const (
	statusProtocolError  StatusCode = 1002
	statusNone           StatusCode = 1005 // the client's close frame had no code; never sent
	statusInvalidPayload StatusCode = 1007
)

// Codes for errors of connections that have been upgraded: 4000 plus the HTTP status that refuses a
// request. With Options.RefuseAfterUpgrade, the router also sends 4400, 4500 and 4501.
const (
	StatusUnauthenticated   StatusCode = 4401
	StatusPermissionDenied  StatusCode = 4403
	StatusSuperseded        StatusCode = 4409 // another connection has resumed the session; see ResumeOptions
	StatusResourceExhausted StatusCode = 4429
	StatusUnavailable       StatusCode = 4503
)

// A CloseError is the code and the reason of a close frame. Options.OnOpen may return one to
// refuse a connection.
type CloseError struct {
	Code   StatusCode
	Reason string // for developers of clients; truncated to 123 bytes
}

// Error describes the close frame, for logs.
func (e *CloseError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("closed with %d %q", e.Code, e.Reason)
}
