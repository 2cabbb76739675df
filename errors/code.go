package errors

import "slices"

// A Code classifies an error. Clients receive its string. The codes below have
// the names and meanings of gRPC's, except [OutcomeUnknown]; applications may
// define their own.
type Code string

// The standard codes.
const (
	Unauthenticated    Code = "UNAUTHENTICATED"     // the credentials are missing, expired or invalid
	PermissionDenied   Code = "PERMISSION_DENIED"   // the identity is known and may not do this
	InvalidArgument    Code = "INVALID_ARGUMENT"    // the message cannot be decoded, or is not valid
	FailedPrecondition Code = "FAILED_PRECONDITION" // the state of the system does not allow it; retrying does not help
	NotFound           Code = "NOT_FOUND"           // the requested entity does not exist
	AlreadyExists      Code = "ALREADY_EXISTS"      // the entity to be created exists
	Unimplemented      Code = "UNIMPLEMENTED"       // no handler is registered for the message's type
	Canceled           Code = "CANCELLED"           // the caller disconnected or canceled the call
	DeadlineExceeded   Code = "DEADLINE_EXCEEDED"   // the deadline of the call has passed
	ResourceExhausted  Code = "RESOURCE_EXHAUSTED"  // a limit was exceeded
	Unavailable        Code = "UNAVAILABLE"         // the server, or a service it depends on, cannot be reached
	Aborted            Code = "ABORTED"             // a conflict with another call; retrying may succeed
	Internal           Code = "INTERNAL"            // a bug, or an error without a code
)

// OutcomeUnknown is the code of an error after which a change may have been made, and
// a publication stored: the connection to the store broke, or the context ended,
// before the store has answered or has confirmed the durability. Repeating it is safe
// only if a second one has no effect, such as with an idempotency key.
const OutcomeUnknown Code = "OUTCOME_UNKNOWN"

// Codes returns the standard codes, in the order above. The caller owns the slice.
func Codes() []Code { return slices.Clone(standardCodes[:]) }

//nolint:gochecknoglobals // never changed
var standardCodes = [...]Code{
	Unauthenticated, PermissionDenied, InvalidArgument, FailedPrecondition, NotFound, AlreadyExists, Unimplemented,
	Canceled, DeadlineExceeded, ResourceExhausted, Unavailable, Aborted, Internal, OutcomeUnknown,
}

// IsStandard reports whether the code is one of [Codes]. Applications may define others.
func (c Code) IsStandard() bool { return slices.Contains(standardCodes[:], c) }

// retryable reports whether sending the same message again may succeed. known is
// false if that does not follow from the code: for Internal and for the codes of
// applications.
func (c Code) retryable() (retryable, known bool) {
	switch c {
	case DeadlineExceeded, ResourceExhausted, Unavailable, Aborted:
		return true, true
	case Unauthenticated, PermissionDenied, InvalidArgument, FailedPrecondition,
		NotFound, AlreadyExists, Unimplemented, Canceled, OutcomeUnknown:
		return false, true
	default:
		return false, false
	}
}
