package postgres

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/appendqueue"
)

// lineageName is a name that no other server has.
func (f *facts) lineageName() string {
	return strconv.Itoa(f.lineage.no) + " " + f.lineage.epoch
}

// confirm waits until replicas have what the server had written before: a commit waits for all WAL
// before it. The message that it writes to the WAL changes nothing.
func (s *store) confirm(d broker.Durability, _ int, limit time.Duration) appendqueue.Confirmation {
	ctx, cancel := context.WithTimeout(context.Background(), limit+callTimeout)
	defer cancel()
	c, err := s.confirmOnce(ctx, d, limit)
	if err != nil {
		c.Err = err
	}
	return c
}

func (s *store) confirmOnce(ctx context.Context, d broker.Durability, limit time.Duration) (c appendqueue.Confirmation, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return c, err
	}
	defer conn.Release()
	warned := warningOf(conn.Conn().PgConn())
	*warned = ""
	level := "local"
	if d.Replicas > 0 {
		level = "remote_write"
		if d.OnDisk {
			level = "on"
		}
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	b.Queue("SELECT set_config('synchronous_commit', $1, true)", level)
	s.queueFacts(b)
	b.Queue("SELECT pg_logical_emit_message(true, 'penstock', '')")
	b.Queue("COMMIT")
	defer cancelAfter(ctx, conn.Conn(), limit)()
	results := conn.SendBatch(ctx, b)
	for range 2 {
		if err == nil {
			_, err = results.Exec()
		}
	}
	var f facts
	if err == nil {
		f, err = scanFacts(results)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return c, err
	}
	c.Lineage = f.lineageName()
	if *warned != "" { // the wait ended without a confirmation
		c.Missing = errors.Errorf(errors.Unavailable, "%d replicas have not confirmed it in time: %s", d.Replicas, *warned)
	}
	return c, nil
}

// cancelAfter cancels what a connection executes after some time: no setting bounds the wait of a
// commit, and the server would continue to wait for the replica if the connection was closed. The
// function that it returns ends that. If it was canceled, the connection is closed, because the
// request may arrive later.
func cancelAfter(ctx context.Context, conn *pgx.Conn, limit time.Duration) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(done)
		_ = conn.PgConn().CancelRequest(ctx)
	})
	return func() {
		if !timer.Stop() {
			<-done
			_ = conn.Close(ctx)
		}
	}
}

// checkConfirmable returns an error if the settings of the server do not permit a confirmation.
func (f *facts) checkConfirmable(d broker.Durability) error {
	switch most := synchronousReplicas(f.standbys); {
	case d.OnDisk && !f.fsync:
		return errors.Errorf(errors.FailedPrecondition, "the publication was not stored: a Durability with OnDisk needs the setting fsync = on of PostgreSQL")
	case d.Replicas > most:
		return errors.Errorf(errors.FailedPrecondition,
			"the publication was not stored: a Durability with %d replicas needs a synchronous_standby_names that waits for as many, such as 'ANY %d (*)'; it is %q", d.Replicas, d.Replicas, f.standbys)
	}
	return nil
}

var synchronousNumber = regexp.MustCompile(`^(?i:FIRST|ANY)?\s*(\d+)\s*\(`)

// synchronousReplicas returns for how many replicas a commit waits.
func synchronousReplicas(standbys string) int {
	standbys = strings.TrimSpace(standbys)
	if standbys == "" {
		return 0
	}
	match := synchronousNumber.FindStringSubmatch(standbys)
	if match == nil {
		return 1
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return 0
	}
	return n
}

// warningKey is where recordWarning keeps a warning.
const warningKey = "penstock warning"

// recordWarning keeps the last warning of a connection: PostgreSQL ends the wait for a replica with
// a warning, not with an error.
func recordWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		*warningOf(conn) = n.Message
	}
}

func warningOf(conn *pgconn.PgConn) *string {
	data := conn.CustomData()
	if data[warningKey] == nil {
		data[warningKey] = new(string)
	}
	return data[warningKey].(*string) //nolint:forcetypeassert // nothing else is there
}
