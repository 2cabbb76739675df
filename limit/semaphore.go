package limit

import "context"

// A Semaphore bounds how many requests of a key run at the same time.
type Semaphore interface {
	// Acquire takes a permit of key if one is free. It never waits for one.
	//
	//   - A key never has more permits in use than its limit.
	//   - A permit becomes free when Release is called or when its process dies.
	//
	// An error means that it is unknown whether a permit is free; the Permit is then the zero
	// one. Acquire is safe for concurrent use.
	Acquire(ctx context.Context, key Key) (Permit, error)
}

// A Permit is the outcome of one Acquire.
type Permit struct {
	Release func() // returns the permit; nil if none was free. Further calls do nothing.
	InUse   int64  // permits of the key in use, including this one
	Limit   int64  // permits that a key has
}
