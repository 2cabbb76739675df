package postgres

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var updateFaults = flag.String("faults.update", "", "the file whose table of results is replaced")

func nothing() {}

// ofProxy is a fault of the network of the node that follows.
func ofProxy(begin func(*faultyDatabase)) func(*faultyDatabase) func() {
	return func(d *faultyDatabase) func() {
		begin(d)
		return d.proxy.Restore
	}
}

// withReplica starts a replica.
func withReplica(d *faultyDatabase) {
	d.primary = startServer(d.t)
	d.replica = d.primary.StartReplica("replica")
}

func faultCases() []faultCase {
	return []faultCase{
		{name: "PostgreSQL is killed, and started after 1 s", lasts: time.Second, begin: func(d *faultyDatabase) func() {
			d.primary.Kill()
			return d.primary.Restart
		}},
		{name: "PostgreSQL is shut down, and started after 1 s", lasts: time.Second, begin: func(d *faultyDatabase) func() {
			d.primary.Stop()
			return d.primary.Restart
		}},
		{name: "a process of PostgreSQL is killed", begin: func(d *faultyDatabase) func() {
			var pid int
			require.NoError(d.t, d.pool.QueryRow(d.t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
			d.primary.KillBackend(pid)
			return nothing
		}},
		{name: "PostgreSQL is paused for 3 s", lasts: 3 * time.Second, begin: func(d *faultyDatabase) func() {
			d.primary.Pause()
			return d.primary.Resume
		}},
		{name: "all connections of the servers are terminated", begin: func(d *faultyDatabase) func() {
			_, err := d.pool.Exec(d.t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
			require.NoError(d.t, err)
			return nothing
		}},
		{name: "a node is cut off for 3 s", lasts: 3 * time.Second, begin: ofProxy(func(d *faultyDatabase) { d.proxy.Cut() })},
		{name: "connections of a node are paused for 3 s", lasts: 3 * time.Second, begin: ofProxy(func(d *faultyDatabase) { d.proxy.Stall() })},
		{name: "a node sends, but receives nothing for 3 s", lasts: 3 * time.Second, begin: ofProxy(func(d *faultyDatabase) { d.proxy.StallReplies() })},
		{
			name: "PgBouncer is killed, and started after 1 s", lasts: time.Second,
			setup: func(d *faultyDatabase) {
				d.primary = startServer(d.t)
				d.pooler = postgrestest.StartPgBouncer(d.t, d.primary.URL())
			},
			begin: func(d *faultyDatabase) func() {
				d.pooler.Kill()
				return d.pooler.Restart
			},
		},
		{name: "switchover: the primary is shut down, then its replica promoted", setup: withReplica, begin: func(d *faultyDatabase) func() {
			d.primary.Stop()
			d.replica.Promote()
			return nothing
		}},
		{
			name: "failover: a replica is promoted that has missed 1 s", setup: withReplica, lasts: time.Second,
			begin: func(d *faultyDatabase) func() {
				d.replica.Settings("primary_conninfo = ''")
				return func() {
					d.primary.Kill()
					d.replica.Promote()
				}
			},
			check: func(t *testing.T, d *faultyDatabase) { assert.Positive(t, d.ended, "the end of the epoch is noticed") },
		},
		openTransaction(), idleHolder(), revoked(), fullDisk(),
	}
}

// openTransaction leaves a transaction open that has published, for a minute in a table.
func openTransaction() faultCase {
	lasts := testscale.Tiers(2*time.Second, 4*time.Second, time.Minute)
	return faultCase{name: fmt.Sprintf("a transaction that has published stays open for %.0f s", lasts.Seconds()), lasts: lasts, begin: func(d *faultyDatabase) func() {
		tx, err := d.pool.Begin(d.t.Context())
		require.NoError(d.t, err)
		_, err = tx.Exec(d.t.Context(), "INSERT INTO written VALUES ('transaction that is late')")
		require.NoError(d.t, err)
		require.NoError(d.t, Publish(d.t.Context(), tx, appendOf(faultTopic, "transaction that is late")))
		return func() { assert.NoError(d.t, tx.Commit(d.t.Context())) }
	}}
}

// idleHolder is a node that stops while it holds the lock of a shard.
func idleHolder() faultCase {
	return faultCase{name: "a node stops while it stores publications", lasts: 4 * time.Second, begin: func(d *faultyDatabase) func() {
		s := d.other.HistoryNode.(*historyNode).store
		tx, err := d.pool.Begin(d.t.Context())
		require.NoError(d.t, err)
		_, err = tx.Exec(d.t.Context(), "SELECT set_config('idle_in_transaction_session_timeout', $1, true)", idleTimeout)
		require.NoError(d.t, err)
		_, err = tx.Exec(d.t.Context(), s.sql(shardLockSQL), shardOf(faultTopic))
		require.NoError(d.t, err)
		return func() { assert.Error(d.t, tx.Commit(d.t.Context()), "PostgreSQL has ended it") }
	}}
}

// revoked takes a privilege away. The superuser has all privileges, so a trigger stands for that.
func revoked() faultCase {
	return faultCase{
		name: "a privilege is revoked for 2 s", lasts: 2 * time.Second,
		begin: func(d *faultyDatabase) func() {
			_, err := d.pool.Exec(d.t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				RAISE insufficient_privilege USING MESSAGE = 'permission denied for table history'; END $$;
				CREATE TRIGGER refuse BEFORE INSERT ON penstock.history FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
			require.NoError(d.t, err)
			return func() {
				_, err := d.pool.Exec(d.t.Context(), "DROP TRIGGER refuse ON penstock.history")
				assert.NoError(d.t, err)
			}
		},
		check: func(t *testing.T, d *faultyDatabase) { assert.Positive(t, d.codes[errors.FailedPrecondition]) },
	}
}

// fullDisk fills the file system of the histories, but not that of the WAL, which would stop
// PostgreSQL. It needs the privilege to mount one.
func fullDisk() faultCase {
	c := faultCase{name: "the disk of the histories is full for 2 s", lasts: 2 * time.Second}
	c.begin = func(d *faultyDatabase) func() {
		dir := d.primary.Folder()
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=24m,mode=0777", "tmpfs", dir).CombinedOutput(); err != nil {
			d.t.Skipf("mount: %v: %s", err, out)
		}
		d.t.Cleanup(func() {
			d.primary.Kill()
			_ = exec.Command("umount", dir).Run()
		})
		small := d.primary.MakeFolder(filepath.Join(dir, "tables"))
		// A statement of its own: none of these runs in a transaction block.
		_, err := d.pool.Exec(d.t.Context(), "CREATE TABLESPACE small LOCATION '"+small+"'")
		require.NoError(d.t, err)
		_, err = d.pool.Exec(d.t.Context(), "ALTER TABLE penstock.history SET TABLESPACE small")
		require.NoError(d.t, err)
		filler := filepath.Join(dir, "filler")
		_ = os.WriteFile(filler, make([]byte, 32<<20), 0o600) // as much as fits
		return func() { assert.NoError(d.t, os.Remove(filler)) }
	}
	c.check = func(t *testing.T, d *faultyDatabase) {
		assert.Positive(t, d.codes[errors.ResourceExhausted], "%v", d.codes)
	}
	return c
}

// TestFaults injects one fault after the other. It writes the table of docs/reference/faults.md;
// see `make faults`.
func TestFaults(t *testing.T) {
	testscale.FullOnly(t, "TestFaults_Restart")
	t.Parallel()
	var rows []faultResult
	for _, c := range testscale.SoakSample(faultCases(), 6) {
		t.Run(c.name, func(t *testing.T) { rows = append(rows, c.run(t)) })
	}
	text := faultTable(rows)
	t.Log("\n" + text)
	if *updateFaults != "" && !t.Failed() {
		require.NoError(t, updateFaultTable(*updateFaults, text))
	}
}

// TestFaults_Restart injects the first fault.
func TestFaults_Restart(t *testing.T) {
	t.Parallel()
	c := faultCases()[0]
	c.run(t)
}

const (
	faultTableBegin = "<!-- table of faults of PostgreSQL: begin -->\n"
	faultTableEnd   = "<!-- table of faults of PostgreSQL: end -->\n"
)

func faultTable(rows []faultResult) string {
	var b strings.Builder
	b.WriteString("| fault | transactions | lost, repeated | epoch ended before | `Append` | refused | unknown | longest silence | recovery |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		ended := "–"
		if r.ended > 0 {
			ended = fmt.Sprintf("%d publications", r.ended)
		}
		fmt.Fprintf(&b, "| %s | %d | %d, %d | %s | %d | %d | %d | %.1f s | %.1f s |\n", r.name, r.transactions, r.lost, r.repeated, ended,
			r.appends, r.refused, r.unsure, r.silence.Seconds(), r.recovery.Seconds())
	}
	return b.String()
}

// updateFaultTable replaces the table in a file, between its two marks.
func updateFaultTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, hasBegin := strings.Cut(string(text), faultTableBegin)
	_, after, hasEnd := strings.Cut(rest, faultTableEnd)
	if !hasBegin || !hasEnd {
		return errors.New(file + " has no marks of the table")
	}
	return os.WriteFile(file, []byte(before+faultTableBegin+"\n"+table+"\n"+faultTableEnd+after), 0o600)
}
