package router

import "fmt"

// A StatusCode says why a connection ends (RFC 6455, section 7.4). Codes from
// 4000 to 4999 are the application's own.
type StatusCode int

// The codes that a router sends or reports.
const (
	StatusNormal          StatusCode = 1000
	StatusGoingAway       StatusCode = 1001
	StatusProtocolError   StatusCode = 1002
	StatusNone            StatusCode = 1005 // the peer's close frame had no code; never sent
	StatusAbnormal        StatusCode = 1006 // there was no close frame; never sent
	StatusPolicyViolation StatusCode = 1008
	StatusTooBig          StatusCode = 1009
	StatusInternalError   StatusCode = 1011
	StatusServiceRestart  StatusCode = 1012
	StatusTryAgainLater   StatusCode = 1013
)

// sendable reports whether a close frame may carry the code.
func (c StatusCode) sendable() bool {
	switch c {
	case 1004, StatusNone, StatusAbnormal:
		return false
	default:
		return c >= 1000 && c <= 1014 || c >= 3000 && c <= 4999
	}
}

// A CloseError is the code and the reason of a close frame. Options.OnOpen
// returns one to refuse a connection.
type CloseError struct {
	Code   StatusCode
	Reason string // for the client's developers; cut to 123 bytes
}

// Error describes the close frame.
func (e *CloseError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("closed with %d %q", e.Code, e.Reason)
}
