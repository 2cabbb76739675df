package redis

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// A readRequest is a call of one of the scripts that read or change an epoch.
type readRequest struct {
	script *redisclient.Script
	args   []any
}

type readCall = batch.Call[readRequest, any]

// execReads executes calls in one round trip for each script.
func (s *historyNode) execReads(ctx context.Context, calls []*readCall) {
	byScript := map[*redisclient.Script][]*readCall{}
	for _, c := range calls {
		byScript[c.Request.script] = append(byScript[c.Request.script], c)
	}
	for text, calls := range byScript {
		args := make([][]any, len(calls))
		for i, c := range calls {
			args[i] = c.Request.args
		}
		for i, reply := range text.Run(ctx, s.client, args) {
			calls[i].Response, calls[i].Err = reply.Result()
		}
	}
}

// Read returns a page of a topic.
func (s *historyNode) Read(ctx context.Context, q broker.Query) (page broker.Page, err error) {
	keys, limit := s.keysOf(q.Topic), max(q.Limit, 0)
	final := "+"
	if q.Before > 0 {
		final = streamID(q.Before - 1)
	}
	if q.Before > 0 && q.Before <= q.After+1 || q.After >= maxOffset {
		limit = 0 // nothing lies between
	}
	reply, err := s.read(ctx, s.scripts.read, keys, q.Retention,
		keys.stream, streamID(min(q.After, maxOffset)+1), final, limit, q.Backward, ageOf(q.Retention).Milliseconds())
	if err != nil {
		return page, err
	}
	page, err = parsePage(reply)
	if q.Backward {
		slices.Reverse(page.Publications)
	}
	return page, err
}

// pageFields is how many results the scripts return for a page.
const pageFields = 6

// parsePage returns a page from its epoch, its offset, where the previous epoch ended, its frames, and
// whether the topic is closed.
func parsePage(reply []any) (page broker.Page, err error) {
	if len(reply) != pageFields {
		return page, errUnexpectedReply
	}
	var ok bool
	if page.Position, ok = parsePosition(reply[0], reply[1]); !ok {
		return page, errUnexpectedReply
	}
	if reply[2] != "" {
		if page.Previous, ok = parsePosition(reply[2], reply[3]); !ok {
			return page, errUnexpectedReply
		}
	}
	page.Closed = reply[5] == "1"
	page.Publications, err = parseFrames(reply[4])
	return page, err
}

// ReadState returns a part of the current state of a topic. A cursor is that of HSCAN, whose meaning
// ends with the server's process, as that of an epoch does.
func (s *historyNode) ReadState(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
	keys := s.keysOf(q.Topic)
	maxBytes := q.MaxBytes
	if maxBytes <= 0 {
		maxBytes = broker.DefaultStateBytes
	}
	reply, err := s.read(ctx, s.scripts.state, keys, q.Retention, keys.state, cmp.Or(q.Cursor, "0"), maxBytes)
	if err != nil {
		return part, err
	}
	if len(reply) != 5 {
		return part, errUnexpectedReply
	}
	now, ok := reply[2].(string)
	next, isString := reply[3].(string)
	millis, err := strconv.ParseInt(now, 10, 64)
	if part.Position, _ = parsePosition(reply[0], reply[1]); !ok || !isString || err != nil || part.Position.Epoch == "" {
		return part, errUnexpectedReply
	}
	if next != "0" {
		part.Next = next
	}
	all, err := parseFrames(reply[4])
	oldest := time.UnixMilli(millis).Add(-ageOf(q.Retention))
	for _, p := range all {
		if p.At.After(oldest) {
			part.Publications = append(part.Publications, p)
		}
	}
	return part, err
}

var errUnexpectedReply = errors.Errorf(errors.Internal, "the script of histories returned something unexpected")

const maxOffset = 1<<53 - 1

func streamID(offset uint64) string { return strconv.FormatUint(offset, 10) + "-0" }

// read calls a script with the metadata, another key and the record of topics without metadata, and
// with an epoch and the lifetime of the metadata before the other arguments. If the script returns that
// the topic has an epoch of another lineage, one is begun; the server may fail over between the two
// calls, so there are several attempts.
func (s *historyNode) read(ctx context.Context, text *redisclient.Script, keys historyKeys, r broker.Retention, key string, argv ...any) (reply []any, err error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	_, metadata := lifetimes(r)
	args := append([]any{3, keys.channel.Name, key, keys.first, newEpoch(), metadata}, argv...)
	const attempts = 3
	for range attempts {
		reply, err = s.call(ctx, text, args)
		if !goredis.HasErrorPrefix(err, "OLDEPOCH") {
			return reply, err
		}
		change := []any{3, keys.channel.Name, keys.stream, keys.first, newEpoch(), metadata}
		if _, err = s.call(ctx, s.scripts.change, change); err != nil {
			return nil, err
		}
	}
	return nil, errors.Errorf(errors.Unavailable, "the metadata of the topic changed %d times while it was read", attempts)
}

// check returns an error if a call must do nothing.
func (s *historyNode) check(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed.Load():
		return appendqueue.ErrClosed
	}
	s.startPolicyCheck()
	return nil
}

// call calls a script on the master. The reply is nil if it is no array.
func (s *historyNode) call(ctx context.Context, text *redisclient.Script, args []any) ([]any, error) {
	c := &readCall{Request: readRequest{text, args}}
	if err := s.reads.Do(ctx, c); err != nil {
		return nil, readError(ctx, err)
	}
	reply, _ := c.Response.([]any)
	return reply, nil
}

// readError gives an error a code, unless it is that of ctx.
func readError(ctx context.Context, err error) error {
	if batch.IsOfContext(ctx, err) {
		return err
	}
	return unreadable(err)
}

func unreadable(err error) error {
	return &errors.Error{Code: errors.Unavailable, Message: "the history cannot be read", Err: err}
}
