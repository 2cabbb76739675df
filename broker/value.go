package broker

import (
	"context"
	"time"
)

// A ValueStore keeps small values that all nodes share, such as the sessions of clients that may
// return. A value is replaced only by a caller that knows its version, so two nodes never change it
// at once. A failover of the store may bring back an older value.
type ValueStore interface {
	// LoadValue returns the value of a key, or the zero Value if there is none, or it has expired.
	// It never reads a replica.
	LoadValue(ctx context.Context, key string) (Value, error)

	// StoreValue stores data under a key for a lifetime, and returns the version of the new value,
	// if the current value has the version; 0 means that there is no value. Otherwise it changes
	// nothing and returns an error with the code ABORTED. A lifetime of 0 or less deletes the value,
	// and returns 0. The caller may change data afterwards. An error with the code [OutcomeUnknown]
	// means that the change may have been made, or may yet be made while the value has the version;
	// any other error means that it was not, and will not be.
	StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (newVersion uint64, err error)
}

// A Value is what a [ValueStore] keeps under a key. The zero Value is none.
type Value struct {
	Data    []byte // belongs to the caller
	Version uint64 // of this key, never used again; 0 if there is no value
}
