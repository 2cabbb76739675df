package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// confirm asks the master of a partition for a confirmation of all that it has stored, and waits for
// its replicas or its disk for at most limit. It writes on the connection on which it waits: WAIT is
// about the writes of a connection, and a duplicate has written nothing. The lineage shows that no
// other server has become the master since the publications were stored.
func (s *historyNode) confirm(d broker.Durability, partition int, limit time.Duration) appendqueue.Confirmation {
	ctx := context.Background()
	master, err := s.masterOf(ctx, partition)
	if err != nil {
		return appendqueue.Confirmation{Err: err}
	}
	if read := master.Options().ReadTimeout; read > 0 {
		master = master.WithTimeout(limit + read)
	}
	mark := redisclient.NewCommand(ctx, "eval", historyLineageLua+historyConfirmLua, []any{1, s.partitionPrefix(partition) + ":confirm"})
	wait := redisclient.Command{Cmd: goredis.NewCmd(ctx, waitCommand(d, max(limit.Milliseconds(), 1))...)}
	pipe := master.Pipeline() // on one connection
	_ = pipe.Process(ctx, mark)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // the commands have their errors
	lineage, err := mark.Text()
	if err == nil {
		err = wait.Err()
	}
	if err != nil {
		s.confirmFailed(err)
		return appendqueue.Confirmation{Err: err}
	}
	return appendqueue.Confirmation{Lineage: lineage, Missing: missing(d, wait.Val())}
}

// masterOf returns the client of one server, whose pipelines use one connection.
func (s *historyNode) masterOf(ctx context.Context, partition int) (*goredis.Client, error) {
	switch c := s.client.(type) {
	case *goredis.Client:
		return c, nil
	case *goredis.ClusterClient:
		return c.MasterForKey(ctx, s.engine.Tags[partition])
	default:
		return nil, errors.Errorf(errors.FailedPrecondition, "a Durability needs a *redis.Client or a *redis.ClusterClient; the broker has a %T", c)
	}
}

func waitCommand(d broker.Durability, millis int64) []any {
	if d.OnDisk {
		return []any{"waitaof", 1, d.Replicas, millis}
	}
	return []any{"wait", d.Replicas, millis}
}

// missing returns why a reply to WAIT or WAITAOF confirms nothing, or nil if it does.
func missing(d broker.Durability, reply any) error {
	var servers, replicas int64
	switch r := reply.(type) {
	case int64:
		replicas = r
	case []any:
		if len(r) == 2 {
			servers, _ = r[0].(int64)
			replicas, _ = r[1].(int64)
		}
	}
	switch {
	case d.OnDisk && servers < 1:
		return errors.New("the server has not written it to disk in time")
	case replicas < int64(d.Replicas):
		return fmt.Errorf("%d of %d replicas have confirmed it in time", replicas, d.Replicas)
	}
	return nil
}

// rejectUnconfirmable returns the batches without the publications whose Durability their server can
// never confirm; those have errors. It asks each server once, before the first of them is stored.
func (s *historyNode) rejectUnconfirmable(batches []*appendBatch) []*appendBatch {
	if !slices.ContainsFunc(batches, func(b *appendBatch) bool { return b.IsDurable }) {
		return batches
	}
	accepted := make([]*appendBatch, 0, len(batches))
	for _, b := range batches {
		calls := slices.DeleteFunc(slices.Clone(b.Calls), func(c *appendCall) bool {
			if c.IsDurable() {
				c.Err = s.checkConfirmable(c.Durability, b.Partition)
			}
			return c.Err != nil
		})
		if len(calls) > 0 {
			accepted = append(accepted, &appendBatch{Partition: b.Partition, Calls: calls, IsDurable: b.IsDurable})
		}
	}
	return accepted
}

// A confirmableKey is what a server can confirm.
type confirmableKey struct {
	path       string
	durability broker.Durability
}

// checkConfirmable returns an error if the master of a partition cannot confirm a Durability, whatever
// its replicas do.
func (s *historyNode) checkConfirmable(d broker.Durability, partition int) error {
	key := confirmableKey{s.link.Path(partition), d}
	if _, ok := s.confirmable.Load(key); ok {
		return nil
	}
	err := s.confirm(d, partition, 0).Err
	if err == nil {
		s.confirmable.Store(key, true)
		return nil
	}
	return unconfirmable(err)
}

// unconfirmable returns the error of a publication that was not stored because of an error of confirm.
// FAILED_PRECONDITION means that settings must change.
func unconfirmable(err error) error {
	e := &errors.Error{Code: errors.FailedPrecondition, Message: "the publication was not stored", Err: err}
	switch reply := strings.ToLower(err.Error()); {
	case strings.Contains(reply, "unknown command"):
		e.Err = fmt.Errorf("a Durability needs the command WAIT, and with OnDisk WAITAOF (Redis 7.2 or newer): %w", err)
	case strings.Contains(reply, "appendonly"):
		e.Err = fmt.Errorf("a Durability with OnDisk needs the setting \"appendonly yes\" of Redis: %w", err)
	case errors.CodeOf(err) != errors.FailedPrecondition && !strings.HasPrefix(reply, "noperm"):
		e.Code = errors.Unavailable
	}
	return e
}

// confirmFailed makes checkConfirmable ask again after an error of a server, which may have other settings
// than before, or be another one.
func (s *historyNode) confirmFailed(err error) {
	if _, isReply := errors.AsType[goredis.Error](err); isReply {
		s.confirmable.Clear()
	}
	if s.engine.Cluster != nil {
		s.link.(*pubsub.Link).ReloadTopology()
	}
}

// setLineage sets the lineage of the calls, which is the last result of the script, and returns the
// other results.
func setLineage(b *appendBatch, results []any) []any {
	if len(results) == 0 {
		return results
	}
	last := len(results) - 1
	lineage, _ := results[last].(string)
	for _, c := range b.Calls {
		c.SetLineage(lineage)
	}
	return results[:last]
}
