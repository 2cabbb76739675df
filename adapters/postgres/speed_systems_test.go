package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/redistest"
)

// A speedSystem stores and delivers publications.
type speedSystem struct {
	name    string
	connect func(h broker.HistoryCallbacks) broker.HistoryNode // nil: publishes only
	publish func(ctx context.Context, node broker.HistoryNode, topic string) error
	settle  func() // waits until what was published is stored
	server  int    // process ID
}

var (
	speedPacket    = []byte(`{"text":"` + strings.Repeat("x", 189) + `"}`) // 200 bytes, JSON
	speedRetention = broker.Retention{Messages: 100, Age: time.Hour}
)

// writtenRows are the rows that transactions of the application change.
const writtenRows = 10_000

// change is what the application writes in its transaction.
func change(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "UPDATE written SET n = n + 1 WHERE id = $1", 1+rand.IntN(writtenRows))
	return err
}

func nothing(context.Context, pgx.Tx) error { return nil }

// speedSystems starts the servers, which flush to the disk as in production: PostgreSQL at each commit, Redis each second.
func speedSystems(b *testing.B) []*speedSystem {
	server := postgrestest.Start(b, "fsync=on", "shared_buffers=128MB")
	pool, err := pgxpool.New(b.Context(), server.URL()+"&pool_max_conns=64")
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	require.NoError(b, postgres.Migrate(b.Context(), pool, ""))
	_, err = pool.Exec(b.Context(), "CREATE TABLE written (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 50); "+
		"INSERT INTO written SELECT i, 0 FROM generate_series(1, "+strconv.Itoa(writtenRows)+") i")
	require.NoError(b, err)
	var backend int
	require.NoError(b, pool.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	postmaster := parentOf(b, backend)

	connect := func(h broker.HistoryCallbacks) broker.HistoryNode {
		return postgres.NewBroker(pool, nil).ConnectHistory(broker.Callbacks{}, h)
	}
	inTx := func(write func(context.Context, pgx.Tx) error) func(context.Context, broker.HistoryNode, string) error {
		return func(ctx context.Context, _ broker.HistoryNode, topic string) error {
			return postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
				if err := write(ctx, tx); err != nil {
					return err
				}
				return postgres.Publish(ctx, tx, broker.Append{Topic: topic, Packet: speedPacket, Retention: speedRetention})
			})
		}
	}
	settle := func() {
		for waiting := true; waiting; time.Sleep(time.Millisecond) {
			require.NoError(b, pool.QueryRow(b.Context(), "SELECT EXISTS (SELECT FROM penstock.outbox)").Scan(&waiting))
		}
	}
	systems := []*speedSystem{
		{name: "PostgreSQL, `Append`", connect: connect, publish: appendTo, settle: func() {}, server: postmaster},
		{name: "PostgreSQL, transaction", connect: connect, publish: inTx(nothing), settle: settle, server: postmaster},
		{name: "PostgreSQL, transaction with an UPDATE", connect: connect, publish: inTx(change), settle: settle, server: postmaster},
	}
	if schema, err := centrifugoSchema(); err != nil {
		b.Logf("Centrifugo's function is not measured: %v", err)
	} else {
		_, err = pool.Exec(b.Context(), schema)
		require.NoError(b, err)
		systems = append(systems,
			&speedSystem{name: "Centrifugo's function", publish: centrifugo(pool, nothing), settle: func() {}, server: postmaster},
			&speedSystem{name: "Centrifugo's function, with an UPDATE", publish: centrifugo(pool, change), settle: func() {}, server: postmaster})
	}
	client := redistest.Start(b, "--appendonly", "yes", "--appendfsync", "everysec").Client(b)
	info, err := client.InfoMap(b.Context(), "server").Result()
	require.NoError(b, err)
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	require.NoError(b, err)
	return append(systems, &speedSystem{name: "Redis, `Append`", publish: appendTo, settle: func() {}, server: pid, connect: func(h broker.HistoryCallbacks) broker.HistoryNode {
		return redis.NewBroker(client).ConnectHistory(broker.Callbacks{}, h)
	}})
}

func appendTo(ctx context.Context, node broker.HistoryNode, topic string) error {
	_, err := node.Append(ctx, broker.Append{Topic: topic, Packet: speedPacket, Retention: speedRetention})
	return err
}

const centrifugoModule = "github.com/centrifugal/centrifugo/v6@v6.9.1"

// centrifugoSchema returns the tables and functions of Centrifugo, from the module proxy, with 8 shards.
func centrifugoSchema() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", centrifugoModule)
	cmd.Dir = os.TempDir() // not a part of this module
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "internal/pgstreambroker/internal/sql/schema.sql"))
	if err != nil {
		return "", err
	}
	schema := strings.NewReplacer("__STREAM_TABLE__", "cf_stream", "__PREFIX__", "cf_stream_", "__DATA_TYPE__", "JSONB").Replace(string(text))
	return schema + "; CREATE TABLE cf_stream_all PARTITION OF cf_stream DEFAULT; INSERT INTO cf_stream_shard_lock SELECT generate_series(0, 7)", nil
}

func centrifugo(pool *pgxpool.Pool, write func(context.Context, pgx.Tx) error) func(context.Context, broker.HistoryNode, string) error {
	return func(ctx context.Context, _ broker.HistoryNode, topic string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := write(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT cf_stream_publish(p_channel => $1, p_data => $2, p_history_ttl => '1 hour', p_history_size => 100)", topic, string(speedPacket))
			return err
		})
	}
}

// parentOf and serverCPU read /proc, which Linux has.
func parentOf(b *testing.B, pid int) (parent int) {
	fields, err := statFields(pid)
	require.NoError(b, err)
	_, err = fmt.Sscan(fields[1], &parent)
	require.NoError(b, err)
	return parent
}

// serverCPU returns the CPU time of a process and of its children, including those that have ended.
func serverCPU(pid int) (total time.Duration) {
	const tick = 10 * time.Millisecond // of Linux
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range stats {
		each, _ := strconv.Atoi(filepath.Base(dir))
		fields, err := statFields(each)
		if err != nil || each != pid && fields[1] != strconv.Itoa(pid) {
			continue
		}
		times := fields[11:13]
		if each == pid {
			times = fields[11:15] // with ended children
		}
		for _, text := range times {
			n, _ := strconv.Atoi(text)
			total += time.Duration(n) * tick
		}
	}
	return total
}

// statFields returns the fields from the state on.
func statFields(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}
