// Package envelope reads what travels: {"type", "meta", "payload"}.
//
// It does so in two parts. [ParseHead] reads the type and the correlation id and
// stops as soon as it knows them, so that refusing a message costs its head and
// not its length. [Parse] then checks the whole frame, as strictly as
// encoding/json and a little more, and finds the payload. Neither allocates,
// unless a name is spelled with escapes. What they return aliases the frame.
package envelope
