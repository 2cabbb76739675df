// Package errors holds Penstock's error codes and what a client may see of an
// error. It exports everything that the standard package errors does, with the
// same meaning, so that a file needs only one of the two:
//
//	return errors.Errorf(errors.NotFound, "room %q does not exist", room)
//	if errors.Is(err, sql.ErrNoRows) { … }
package errors
