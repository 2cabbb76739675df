package redis

import (
	"context"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// maxScriptTopics bounds how many topics a script reads: the server does nothing else meanwhile, for about
// 10 µs per topic.
const maxScriptTopics = 1000

// A batchPart is what one script reads of a batch.
type batchPart struct {
	indexes []int // of the topics, which are of one partition
	args    []any
	pages   bool // publications are requested
}

// ReadAll reads several topics with one script for each partition. Scripts that read only positions are
// called at the same time; others one after the other, so that each gets what is left of the bounds.
func (s *historyNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	pages := make([]broker.BatchPage, len(b.Topics))
	messages, bytes := int64(max(b.MaxMessages, 0)), int64(max(b.MaxBytes, 0))
	var positions sync.WaitGroup
	for _, part := range s.partsOf(b) {
		if !part.pages {
			positions.Go(func() { s.readPart(ctx, part, 0, 0, pages) })
			continue
		}
		messages, bytes = s.readPart(ctx, part, messages, bytes, pages)
	}
	positions.Wait()
	return pages, ctx.Err()
}

// partsOf returns the parts of a batch.
func (s *historyNode) partsOf(b broker.Batch) (parts []*batchPart) {
	latest := map[int]*batchPart{} // by partition
	for i, q := range b.Topics {
		keys := s.keysOf(q.Topic)
		part := latest[keys.channel.Partition]
		if part == nil || len(part.indexes) == maxScriptTopics {
			part = new(batchPart)
			latest[keys.channel.Partition] = part
			parts = append(parts, part)
		}
		limit := max(q.Limit, 0)
		if q.After >= maxOffset {
			limit = 0 // nothing follows
		}
		part.indexes = append(part.indexes, i)
		part.pages = part.pages || limit > 0
		_, metadata := lifetimes(q.Retention)
		part.args = append(part.args, keys.channel.Name, keys.stream, keys.first,
			metadata, min(q.After, maxOffset), limit, ageOf(q.Retention).Milliseconds())
	}
	return parts
}

// scriptArgs returns the arguments of a script call, see history_batch.lua.
func (p *batchPart) scriptArgs(messages, bytes int64) []any {
	const perTopic, keysPerTopic = 7, 3
	args := make([]any, 0, len(p.args)+4)
	args = append(args, keysPerTopic*len(p.indexes))
	for i := 0; i < len(p.args); i += perTopic {
		args = append(args, p.args[i:i+keysPerTopic]...)
	}
	args = append(args, newEpoch(), messages, bytes)
	for i := 0; i < len(p.args); i += perTopic {
		args = append(args, p.args[i+keysPerTopic:i+perTopic]...)
	}
	return args
}

// readPart sets the pages of a part, and returns what is left of the bounds.
func (s *historyNode) readPart(ctx context.Context, p *batchPart, messages, bytes int64, pages []broker.BatchPage) (messagesLeft, bytesLeft int64) {
	reply, err := s.call(ctx, s.scripts.batch, p.scriptArgs(messages, bytes))
	if err == nil && len(reply) != len(p.indexes)+2 {
		err = errUnexpectedReply
	}
	if err != nil {
		for _, i := range p.indexes {
			pages[i].Err = err
		}
		return messages, bytes
	}
	for n, i := range p.indexes {
		pages[i] = parseBatchPage(reply[n+2])
	}
	messagesLeft, _ = reply[0].(int64)
	bytesLeft, _ = reply[1].(int64)
	return messagesLeft, bytesLeft
}

// parseBatchPage returns the page of one topic.
func parseBatchPage(reply any) (page broker.BatchPage) {
	fields, _ := reply.([]any)
	switch failure, isFailure := reply.(string); {
	case isFailure:
		page.Err = unreadable(errors.New(failure))
		return page
	case len(fields) != pageFields:
		page.Err = errUnexpectedReply
		return page
	}
	if _, page.Omitted = fields[4].(int64); page.Omitted {
		fields[4] = []any{}
	}
	page.Page, page.Err = parsePage(fields)
	return page
}
