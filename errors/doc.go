// Package errors defines errors with a code, a public part that clients receive,
// and a private cause for the log. It also exports all names of the standard
// package errors, with the same meaning, so a file needs only one of the two:
//
//	return errors.Errorf(errors.NotFound, "room %q does not exist", room)
//	if errors.Is(err, sql.ErrNoRows) { … }
package errors
