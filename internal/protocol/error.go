package protocol

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// An ErrorPayload is the payload of an error message: the public part of an error.
type ErrorPayload struct {
	Code         errors.Code  `json:"code"`
	Message      string       `json:"message,omitempty"`
	Details      any          `json:"details,omitempty"`
	Retryable    bool         `json:"retryable"`
	RetryAfterMs jsonv2.Value `json:"retryAfterMs,omitzero"` // null if no wait can help
}

// A LimitDetails is the Details of a limit that was exceeded.
type LimitDetails struct {
	Kind     string `json:"kind"`
	Observed int64  `json:"observed"`
	Limit    int64  `json:"limit"`
	Reason   string `json:"reason,omitempty"`
	Policy   string `json:"policy,omitempty"`
}
