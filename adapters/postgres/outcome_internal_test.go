package postgres

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// A resettingConn loses the answer to a COMMIT while isArmed, as if the network reset the
// connection before it arrived.
type resettingConn struct {
	net.Conn
	isArmed *atomic.Bool
}

func (c *resettingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && bytes.Contains(b[:n], []byte("COMMIT\x00")) && c.isArmed.Load() {
		_ = c.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// resettingPool returns a pool whose connections lose answers while isArmed.
func resettingPool(t testing.TB, url string, mode pgx.QueryExecMode, isArmed *atomic.Bool) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &resettingConn{conn, isArmed}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestOutcome_LostAnswerToCommitIsUnknown resets connections after the server has committed.
func TestOutcome_LostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			direct, schema := newSchema(t)
			var isArmed atomic.Bool
			pool := resettingPool(t, direct.Config().ConnString(), mode, &isArmed)
			n := connect(t, NewBroker(pool, &Options{Schema: schema, PollInterval: time.Hour}))
			n.publish(t, "news", "1")
			_, err := n.StoreValue(t.Context(), "other", nil, 0, time.Hour)
			require.NoError(t, err)

			isArmed.Store(true)
			_, appendErr := n.Append(t.Context(), appendOf("news", "2"))
			_, valueErr := n.StoreValue(t.Context(), "key", []byte("stored"), 0, time.Hour)
			txErr := Outbox{Schema: schema}.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
				return Outbox{Schema: schema}.Publish(ctx, tx, appendOf("news", "3"))
			})
			isArmed.Store(false)
			for what, err := range map[string]error{"publication": appendErr, "value": valueErr, "transaction": txErr} {
				assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), "%s: %v", what, err)
			}

			n.publish(t, "news", "4")
			_, packets := n.page(t, "news")
			assert.Equal(t, []string{"1", "2", "3", "4"}, packets)
			value, err := n.LoadValue(t.Context(), "key")
			require.NoError(t, err)
			assert.Equal(t, "stored", string(value.Data))
		})
	}
}

// TestStoreError_OnlyAnErrorOfTheServerMeansNotStored has the errors of a batch with a COMMIT.
func TestStoreError_OnlyAnErrorOfTheServerMeansNotStored(t *testing.T) {
	t.Parallel()
	of := func(severity, code string) error {
		return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: severity, Code: code} // lc_messages may be any
	}
	for _, c := range []struct {
		err  error
		want errors.Code
	}{
		{of("ERROR", "40001"), errors.Unavailable},
		{of("ERROR", "53100"), errors.ResourceExhausted},
		{of("ERROR", "42P01"), errors.FailedPrecondition},
		{of("FATAL", "57P01"), errors.OutcomeUnknown},
		{of("PANIC", "53100"), errors.OutcomeUnknown},
		{of("", "08P01"), errors.OutcomeUnknown}, // of PgBouncer, whose server has gone away
		{of("ERROR", "08P01"), errors.OutcomeUnknown},
		{&pgconn.PgError{Severity: "ERROR", Code: "08P01"}, errors.OutcomeUnknown},
		{errSafeToRetry{}, errors.OutcomeUnknown},
		{context.DeadlineExceeded, errors.OutcomeUnknown},
	} {
		assert.Equal(t, c.want, errors.CodeOf(storeError("value", c.err)), "%v", c.err)
	}
}

// An errSafeToRetry is what pgx returns about a connection that was closed, whatever was sent before.
type errSafeToRetry struct{}

func (errSafeToRetry) Error() string     { return "conn closed" }
func (errSafeToRetry) SafeToRetry() bool { return true }
