package brokertest_test

import (
	"context"
	"slices"

	"github.com/penstock-go/penstock/broker"
)

func brokenBatches() map[string]brokenHistory {
	return map[string]brokenHistory{
		"returns batch pages in another order": {batchDefect(func(_ broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			slices.Reverse(pages)
			return pages
		}), "batch pages"},
		"omits a batch page that fits": {batchDefect(func(_ broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			for i := range pages {
				if len(pages[i].Publications) > 2 {
					pages[i].Publications, pages[i].Omitted = nil, true
				}
			}
			return pages
		}), "batch pages"},
		"returns expired publications in batches": {changeBatch(func(b *broker.Batch) {
			b.Topics = slices.Clone(b.Topics)
			for i := range b.Topics {
				b.Topics[i].Retention.Age = 0
			}
		}), "batch pages"},
		"ignores the messages of batches": {changeBatch(func(b *broker.Batch) { b.MaxMessages = 1000 }), "batch bounds"},
		"ignores the bytes of batches":    {changeBatch(func(b *broker.Batch) { b.MaxBytes = 1000 }), "batch bounds"},
		"returns a part of a batch page": {batchDefect(func(b broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			left := b.MaxMessages
			for i := range pages {
				left -= len(pages[i].Publications)
				if left < 0 {
					pages[i].Publications = pages[i].Publications[:max(len(pages[i].Publications)+left, 0)]
				}
				if pages[i].Omitted {
					pages[i].Omitted = false
				}
			}
			return pages
		}), "batch bounds"},
		"returns short batch pages of full histories": {batchDefect(func(b broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			for i, q := range b.Topics {
				if p := pages[i].Publications; len(p) > 64 && p[0].Position.Offset > q.After+1 {
					pages[i].Publications = p[:64]
				}
			}
			return pages
		}), "batch of a full history"},
		"hides errors of batches": {historyDefect{node: func(o *override) {
			o.batch = func(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
				pages, err := o.HistoryNode.ReadAll(ctx, b)
				if err != nil {
					return make([]broker.BatchPage, len(b.Topics)), nil //nolint:nilerr // the defect
				}
				return pages, nil
			}
		}}, "batch in faults"},
		"leaves out topics of batches": {batchDefect(func(_ broker.Batch, pages []broker.BatchPage) []broker.BatchPage {
			return pages[:len(pages)-1]
		}), "batch in faults"},
	}
}

// changeBatch changes the arguments of ReadAll.
func changeBatch(change func(*broker.Batch)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.batch = func(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
			change(&b)
			return o.HistoryNode.ReadAll(ctx, b)
		}
	}}
}

// batchDefect changes the results of ReadAll.
func batchDefect(change func(broker.Batch, []broker.BatchPage) []broker.BatchPage) historyDefect {
	return historyDefect{node: func(o *override) {
		o.batch = func(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
			pages, err := o.HistoryNode.ReadAll(ctx, b)
			if err == nil {
				pages = change(b, pages)
			}
			return pages, err
		}
	}}
}
