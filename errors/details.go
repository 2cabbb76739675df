package errors

import (
	"encoding/json"
	"errors"
)

// FieldDetails are the Details of an [InvalidArgument] error that names the invalid field of a
// message, as [InvalidField] returns it.
type FieldDetails struct {
	Field  string `json:"field"` // its path in the payload, joined by dots
	Reason string `json:"reason,omitzero"`

	// Fields are all invalid fields, the first one included, if a client has been sent
	// several. They have no Fields themselves.
	Fields []FieldDetails `json:"fields,omitzero"`
}

// LimitDetails are the Details of an error for an exceeded limit, as the router sends them.
type LimitDetails struct {
	Kind     string `json:"kind"`     // such as rate; see router.LimitKind
	Observed int64  `json:"observed"` // what the message would have needed
	Limit    int64  `json:"limit"`    // what is permitted
	Reason   string `json:"reason,omitzero"`
	Policy   string `json:"policy,omitzero"` // the name of the policy
}

// DetailsOf returns the Details of the first *Error in err's tree as a T. An error that was
// received has them as a map, from which package encoding/json makes a T, as from those of
// any other type. It returns the zero value if there are none, or if they do not fit in a T.
func DetailsOf[T any](err error) T {
	var details, none T
	e, ok := errors.AsType[*Error](err)
	if !ok || e == nil || e.Details == nil {
		return none
	}
	if same, ok := e.Details.(T); ok {
		return same
	}
	text, err := json.Marshal(e.Details)
	if err != nil || json.Unmarshal(text, &details) != nil {
		return none
	}
	return details
}
