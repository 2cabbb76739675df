package failure

import (
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// Bounds of the list of invalid fields that a client receives. Names of fields may contain keys
// that the client has chosen, so without a bound a short message could cause a long answer.
const (
	maxFieldErrors     = 32
	maxFieldErrorBytes = 4096 // of all names, reasons and messages but the first
)

// JoinFields returns one error for all errors in err's tree that name an invalid field, as
// those of [errors.InvalidField] do. The first is the first *errors.Error of the tree, and is
// returned unchanged if it names no field or is the only one.
func JoinFields(first *errors.Error, err error) *errors.Error {
	details, named := fieldOf(first)
	if !named || error(first) == err { //nolint:errorlint // the common case: a single error
		return first
	}
	all, more := fieldErrors(err)
	if details.Fields != nil || len(all) < 2 || all[0] != first {
		return first
	}
	joined := *first
	fields := make([]errors.FieldDetails, len(all))
	causes := make([]error, 0, len(all))
	for i, e := range all {
		fields[i], _ = fieldOf(e)
		fields[i].Fields = nil
		causes = append(causes, e.Err)
		if i > 0 {
			joined.Message += "; " + e.Message
		}
	}
	if more {
		joined.Message += "; and more"
	}
	details.Fields = fields
	joined.Details = details
	joined.Err = errors.Join(causes...) // nil if all are nil
	return &joined
}

// fieldErrors returns the errors of a tree that name an invalid field, without repetitions, and
// whether there are more than the bounds allow. It does not search the causes of an
// *errors.Error, because they are private. Unlike tree, it does not panic for a tree that is
// too large: the error that it looks for has been found.
func fieldErrors(err error) (all []*errors.Error, more bool) {
	visited, bytes := 0, 0
	for next := range wrapped(err, isPublic) {
		if visited++; visited > maxTreeErrors {
			return all, true
		}
		e, ok := next.(*errors.Error) //nolint:errorlint // the iterator unwraps
		if !ok || e == nil {
			continue
		}
		field, named := fieldOf(e)
		if !named || slices.Contains(all, e) {
			continue
		}
		if len(all) > 0 {
			bytes += len(field.Field) + len(field.Reason) + len(e.Message)
		}
		if len(all) == maxFieldErrors || bytes > maxFieldErrorBytes {
			return all, true
		}
		all = append(all, e)
	}
	return all, false
}

// isPublic reports whether a client may see what an error wraps.
func isPublic(err error) bool {
	_, coded := err.(*errors.Error) //nolint:errorlint // the iterator unwraps
	return !coded
}

// fieldOf returns the invalid field that an error names.
func fieldOf(e *errors.Error) (errors.FieldDetails, bool) {
	details, ok := e.Details.(errors.FieldDetails)
	return details, ok && e.Code == errors.InvalidArgument
}
