//go:build unix

package postgrestest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/freeport"
)

// A PgBouncer is a pooler in transaction mode in front of a server.
type PgBouncer struct {
	t       testing.TB
	port    int
	config  string
	process *process
}

// StartPgBouncer starts a pooler in front of the server of a connection string. It ends with the
// test.
func StartPgBouncer(t testing.TB, server string) *PgBouncer {
	t.Helper()
	require(t, "pgbouncer", "pgbouncer")
	s := &Server{t: t}
	b := &PgBouncer{t: t, port: freeport.Pick()}
	dir := s.newFolder()
	b.config = filepath.Join(dir, "pgbouncer.ini")
	_, serverPort, err := net.SplitHostPort(Addr(server))
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %d\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 40\nserver_login_retry = 1\n", host, serverPort, host, b.port)
	if err := os.WriteFile(b.config, []byte(config), 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatalf("postgrestest: %v", err)
	}
	t.Cleanup(b.Kill)
	b.Restart()
	return b
}

// URL returns a connection string that leads through the pooler.
func (b *PgBouncer) URL() string { return url(b.port, "postgres") }

// Kill ends the pooler and closes its connections.
func (b *PgBouncer) Kill() {
	if b.process != nil {
		b.process.kill()
		b.process = nil
	}
}

// Restart starts the pooler after Kill.
func (b *PgBouncer) Restart() {
	b.t.Helper()
	var err error
	if b.process, err = start("pgbouncer", b.config); err != nil {
		b.t.Fatalf("postgrestest: %v", err)
	}
	addr := net.JoinHostPort(host, strconv.Itoa(b.port))
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		if b.process.exited() || time.Now().After(deadline) {
			b.t.Fatalf("postgrestest: PgBouncer does not start: %v; its output:\n%s", err, b.process.output())
		}
	}
}
