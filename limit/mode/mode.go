// Package mode has the ways in which a Take of package limit takes tokens. Applications mostly use the
// functions of package limit, such as limit.Charge, which set them.
package mode

// A Mode is a way to take tokens.
type Mode uint8

// The modes. Only Whole and Looking permit Keep and MaxWait.
const (
	// Whole takes Cost, or nothing.
	Whole Mode = iota

	// Looking decides as Whole, and takes nothing.
	Looking

	// Partial takes as many tokens as the bucket holds, but at most Cost. The Decision has their
	// number as Granted. It is allowed if at least one token was taken, and otherwise has the
	// time until one can be taken as RetryAfter.
	Partial

	// Charging takes Cost even if the bucket holds less. The deficit may be of any size, and later
	// calls are denied until it has returned; adapters count deficits up to
	// MaxDeficit of package limit/adapter, and forget the rest. A sliding window counts at most twice its Max, and a quota forgets the
	// deficit when its period ends. Nothing is taken from a blocked key. The Decision has no
	// number.
	Charging

	// Returning puts Cost tokens into the bucket, which never holds more than its capacity. The
	// Decision has no number.
	Returning

	// Undoing returns what the Take with the receipt Undo took: a bucket is then as if the Take had not
	// been made. Refill that was lost because the bucket was full does not return, and is deducted
	// once for all Takes that overlap. So calls and their undoing together are never granted more
	// than the policy allows, unless the key was reset or blocked in between.
	//
	// That is exact for a minute after the tokens could be spent, and for the receipts of 16 Takes
	// of a key at once. Of others, less may return: the refill since the Take is deducted, lost or
	// not. Undoing a Take twice returns its tokens twice. The receipt of a Take with a Lease is an
	// error: settle it with a Cost of 0, as Receipt.Undo does. The Decision has no number.
	Undoing

	// Settling replaces what the Take with a Lease and the receipt Undo took by Cost, which is what
	// its work has really used. The Decision has no number.
	//
	//   - If Cost is less, the difference returns, as by Undoing: as if the Take had been one of Cost. For
	//     leases, that is always exact.
	//   - If Cost is more, the difference is taken, as by Charging, even if the bucket holds less.
	//   - After the end of the lease, whose tokens have returned, Cost is taken as by Charging.
	//   - The lease ends. Until the time at which it would have ended, settling it again does nothing,
	//     so that a caller can repeat it after an error. That is known of the last 1,000 that
	//     were settled.
	//   - For the zero Receipt, of a Take that took nothing, Cost is taken as by Charging. The receipt of a
	//     Take that took something without a Lease is an error.
	Settling
)
