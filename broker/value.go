package broker

import (
	"context"
	"slices"
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
	// and returns 0. The caller may change data afterwards. An error with the code [errors.OutcomeUnknown]
	// means that the change may have been made, or may yet be made while the value has the version;
	// any other error means that it was not, and will not be.
	StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (newVersion uint64, err error)

	// PatchValue is StoreValue for data of which only a part changes, at a cost in proportion to that part:
	// the data of the current value changes as p says. If it is too short for that, PatchValue changes
	// nothing and returns an error with the code INVALID_ARGUMENT.
	PatchValue(ctx context.Context, key string, p Patch, version uint64, lifetime time.Duration) (newVersion uint64, err error)
}

// A Patch replaces Remove bytes at Offset by Data, which may have another length. The zero Patch leaves the
// data as it is.
type Patch struct {
	Offset, Remove int
	Data           []byte // the caller may change it afterwards
}

// NewPatch returns a Patch that turns one text into another: the part between what both begin with and what both end with.
// It refers to the memory of to.
func NewPatch(from, to []byte) Patch {
	start := 0
	for start < min(len(from), len(to)) && from[start] == to[start] {
		start++
	}
	end := 0 // bytes
	for end < min(len(from), len(to))-start && from[len(from)-1-end] == to[len(to)-1-end] {
		end++
	}
	return Patch{Offset: start, Remove: len(from) - end - start, Data: to[start : len(to)-end]}
}

// Apply returns the changed data in new memory. It returns false if data is too short for the patch.
func (p Patch) Apply(data []byte) (changed []byte, ok bool) {
	if p.Offset < 0 || p.Remove < 0 || p.Offset > len(data) || p.Remove > len(data)-p.Offset {
		return nil, false
	}
	return slices.Concat(data[:p.Offset], p.Data, data[p.Offset+p.Remove:]), true
}

// A Value is what a [ValueStore] keeps under a key. The zero Value is none.
type Value struct {
	Data    []byte // belongs to the caller
	Version uint64 // of this key, never used again; 0 if there is no value
}
