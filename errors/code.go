package errors

// A Code says what kind of failure an error is. Its string is what travels on
// the wire. The codes below are gRPC's, with gRPC's meanings; applications may
// add their own.
type Code string

// The standard codes.
const (
	Unauthenticated    Code = "UNAUTHENTICATED"     // the credentials are missing, expired or invalid
	PermissionDenied   Code = "PERMISSION_DENIED"   // the identity is known and may not do this
	InvalidArgument    Code = "INVALID_ARGUMENT"    // the message does not decode or validate
	FailedPrecondition Code = "FAILED_PRECONDITION" // the state forbids it, and waiting does not help
	NotFound           Code = "NOT_FOUND"           // what the message names does not exist
	AlreadyExists      Code = "ALREADY_EXISTS"      // what the message would create exists
	Unimplemented      Code = "UNIMPLEMENTED"       // no handler is registered for the message's type
	Canceled           Code = "CANCELLED"           // the caller went away or gave up
	DeadlineExceeded   Code = "DEADLINE_EXCEEDED"   // the time for the call ran out
	ResourceExhausted  Code = "RESOURCE_EXHAUSTED"  // a limit was exceeded
	Unavailable        Code = "UNAVAILABLE"         // something the server depends on is out of reach
	Aborted            Code = "ABORTED"             // a conflict with another call; trying again may succeed
	Internal           Code = "INTERNAL"            // a bug, or an error that nobody gave a code
)

// retryable reports whether a later attempt at the same message may succeed.
// The second result is false where the code alone does not tell: Internal, and
// an application's own codes.
func (c Code) retryable() (retryable, known bool) {
	switch c {
	case DeadlineExceeded, ResourceExhausted, Unavailable, Aborted:
		return true, true
	case Unauthenticated, PermissionDenied, InvalidArgument, FailedPrecondition,
		NotFound, AlreadyExists, Unimplemented, Canceled:
		return false, true
	default:
		return false, false
	}
}
