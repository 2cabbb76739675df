// Package envelope scans message envelopes: {"type", "meta", "payload"}.
//
// [ParseHead] reads the type and the correlation ID and stops as soon as both are known, so the
// cost of rejecting a message depends on its head and not on its length. [Parse] validates the
// whole envelope, as strictly as encoding/json and with additional rules, and finds the payload.
// Neither function allocates, unless a name contains escape sequences. The returned slices alias
// the input.
package envelope
