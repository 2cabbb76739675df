package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/random"
)

// A valueRequest loads a value, or changes it if it has a version.
type valueRequest struct {
	key      string
	hash     []byte
	isLoad   bool
	version  uint64
	lifetime time.Duration // 0 or less deletes
	next     uint64        // the new version
	data     []byte
	patch    *broker.Patch // without its data; nil replaces everything
}

type valueCall = batch.Call[valueRequest, broker.Value]

// LoadValue returns the value of a key.
func (s *historyNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := s.check(ctx); err != nil {
		return broker.Value{}, err
	}
	c := &valueCall{Request: valueRequest{key: key, hash: hashOf(key), isLoad: true}}
	if err := s.values.Do(ctx, c); err != nil {
		return broker.Value{}, readError(ctx, "value", err)
	}
	return c.Response, nil
}

// StoreValue replaces the value of a key.
func (s *historyNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(ctx, valueRequest{key: key, version: version, lifetime: lifetime, data: data})
}

// PatchValue changes a part of the value of a key.
func (s *historyNode) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(ctx, valueRequest{key: key, version: version, lifetime: lifetime, data: p.Data, patch: &broker.Patch{Offset: p.Offset, Remove: p.Remove}})
}

func (s *historyNode) changeValue(ctx context.Context, r valueRequest) (uint64, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	r.hash = hashOf(r.key)
	// A sequence would go back if a failover loses its end, and a call that is being sent when its
	// context ends outlives this one, so it needs its own data.
	r.next, r.data = random.Uint64()>>1|1, bytes.Clone(r.data)
	if r.data == nil {
		r.data = []byte{}
	}
	c := &valueCall{Request: r}
	switch err := s.values.Do(ctx, c); {
	case err == nil:
		return c.Response.Version, nil
	case errors.CodeOf(err) == errors.Aborted || errors.CodeOf(err) == errors.InvalidArgument:
		return 0, err
	default:
		return 0, storeError("value", err)
	}
}

// execValues executes calls in one transaction, in the order of their keys: another one that has
// the same keys would otherwise wait for this one, and this one for it.
func (s *store) execValues(ctx context.Context, calls []*valueCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b *valueCall) int { return bytes.Compare(a.Request.hash, b.Request.hash) })
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		err = notStored("value", err)
		for _, c := range calls {
			c.Err = err
		}
		return
	}
	defer conn.Release()
	b := &pgx.Batch{}
	begin(b)
	b.Queue("SELECT pg_current_wal_insert_lsn()") // fails on a replica
	for _, c := range calls {
		s.queueValue(b, &c.Request)
	}
	b.Queue("COMMIT")
	results := conn.SendBatch(ctx, b)
	for range 3 {
		if err == nil {
			_, err = results.Exec()
		}
	}
	for _, c := range calls {
		if err == nil {
			err = scanValue(c, results)
		}
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		for _, c := range calls {
			c.Err = err
		}
	}
}
