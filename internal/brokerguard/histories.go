package brokerguard

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// Histories returns histories whose panics are reported. The outcome of a call that stores
// something is then unknown.
func Histories(h broker.Histories, r Report) broker.Histories { return guardedHistories{h, r} }

type guardedHistories struct {
	histories broker.Histories
	report    Report
}

func (g guardedHistories) Append(ctx context.Context, p broker.Append) (stored broker.Appended, err error) {
	defer g.report.recoverAs("Broker.Append", broker.OutcomeUnknown, &err)
	return g.histories.Append(ctx, p)
}

func (g guardedHistories) Read(ctx context.Context, q broker.Query) (page broker.Page, err error) {
	defer g.report.recoverAs("Broker.Read", errors.Internal, &err)
	return g.histories.Read(ctx, q)
}

func (g guardedHistories) ReadAll(ctx context.Context, b broker.Batch) (pages []broker.BatchPage, err error) {
	defer g.report.recoverAs("Broker.ReadAll", errors.Internal, &err)
	return g.histories.ReadAll(ctx, b)
}

func (g guardedHistories) ReadState(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
	defer g.report.recoverAs("Broker.ReadState", errors.Internal, &err)
	return g.histories.ReadState(ctx, q)
}

func (g guardedHistories) LoadValue(ctx context.Context, key string) (value broker.Value, err error) {
	defer g.report.recoverAs("Broker.LoadValue", errors.Internal, &err)
	return g.histories.LoadValue(ctx, key)
}

func (g guardedHistories) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (newVersion uint64, err error) {
	defer g.report.recoverAs("Broker.StoreValue", broker.OutcomeUnknown, &err)
	return g.histories.StoreValue(ctx, key, data, version, lifetime)
}

func (g guardedHistories) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (newVersion uint64, err error) {
	defer g.report.recoverAs("Broker.PatchValue", broker.OutcomeUnknown, &err)
	return g.histories.PatchValue(ctx, key, p, version, lifetime)
}

func (g guardedHistories) Follow(topic string) {
	defer g.report.recover("Broker.Follow")
	g.histories.Follow(topic)
}

func (g guardedHistories) Unfollow(topic string) {
	defer g.report.recover("Broker.Unfollow")
	g.histories.Unfollow(topic)
}
