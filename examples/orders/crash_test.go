package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A crash is a moment at which a node kills itself with SIGKILL: before a statement is sent or after its
// result has arrived.
type crash struct {
	statement string // a part of it
	after     bool
	nth       int64 // of the statements
}

func (c crash) String() string {
	when := "before"
	if c.after {
		when = "after"
	}
	return fmt.Sprintf("%s %d %s", when, c.nth, c.statement)
}

// parseCrash parses what String returns. "" is none.
func parseCrash(text string) (c crash) {
	fields := strings.SplitN(text, " ", 3)
	if len(fields) < 3 {
		return crash{}
	}
	_, _ = fmt.Sscan(fields[1], &c.nth)
	return crash{fields[2], fields[0] == "after", c.nth}
}

const (
	nodeArgs  = "PENSTOCK_ORDERS_ARGS"
	nodeCrash = "PENSTOCK_ORDERS_CRASH"
)

// TestMain runs a node instead of the tests if startNode has started this process.
func TestMain(m *testing.M) {
	if os.Getenv(nodeArgs) == "" {
		os.Exit(m.Run())
	}
	cfg, err := parseFlags(strings.Fields(os.Getenv(nodeArgs)), os.Stderr)
	if err == nil {
		tracer := &crashTracer{crash: parseCrash(os.Getenv(nodeCrash))}
		cfg.postgres.ConnConfig.Tracer = tracer // of the broker's connections, too
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = run(ctx, cfg, &armingWriter{os.Stdout, tracer})
	}
	fmt.Fprintln(os.Stderr, "orders:", err)
	os.Exit(1)
}

// An armingWriter arms a tracer when the node has started.
type armingWriter struct {
	io.Writer
	tracer *crashTracer
}

func (w *armingWriter) Write(p []byte) (int, error) {
	w.tracer.armed.Store(true)
	return w.Writer.Write(p)
}

// A crashTracer kills the process.
type crashTracer struct {
	crash crash
	armed atomic.Bool
	seen  atomic.Int64
}

func (c *crashTracer) at(statement string, after bool) {
	if !c.armed.Load() || c.crash.statement == "" || after != c.crash.after || !strings.Contains(statement, c.crash.statement) {
		return
	}
	if c.seen.Add(1) == c.crash.nth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // this statement must not continue
	}
}

type statementKey struct{}

func (c *crashTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.at(data.SQL, false)
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (c *crashTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	statement, _ := ctx.Value(statementKey{}).(string)
	c.at(statement, true)
}

// A batch counts as one statement, with the text of all of them.
func (c *crashTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var all strings.Builder
	for _, q := range data.Batch.QueuedQueries {
		all.WriteString(q.SQL)
		all.WriteString("; ")
	}
	c.at(all.String(), false)
	return context.WithValue(ctx, statementKey{}, all.String())
}

func (c *crashTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *crashTracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	c.TraceQueryEnd(ctx, conn, pgx.TraceQueryEndData{})
}
