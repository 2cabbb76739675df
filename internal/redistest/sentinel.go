package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Sentinel is a sentinel process that watches a master and its replica.
type Sentinel struct {
	Master  *Server // as StartSentinel or the last Promote left it
	Replica *Server

	server *Server
	admin  *redis.SentinelClient
}

// group is the name by which the sentinel knows the two.
const group = "main"

// StartSentinel starts a master, its replica and a sentinel, which by itself
// fails over once the master has not answered for 500 milliseconds. The replica is
// in sync and fit for promotion when StartSentinel returns. The processes are
// killed when the test ends.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	need(t)
	s := &Sentinel{Master: Start(t)}
	s.Replica = Start(t, "--replicaof", host+" "+strconv.Itoa(s.Master.process.port))
	// A sentinel asks its master only every ten seconds for replicas, first at its
	// own start.
	if err := poll(func() (bool, error) { return s.Master.hasReplica(t) }); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if err := poll(func() (bool, error) { return s.watches(t) }); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts the sentinel process.
func (s *Sentinel) start(t testing.TB) {
	t.Helper()
	conf := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]d 1
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 5000
`, group, host, s.Master.process.port)
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf") // which the sentinel rewrites
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s.server = launch(t, func(port int) []string {
		return []string{file, "--sentinel", "--bind", host, "--port", strconv.Itoa(port), "--dir", dir}
	})
	s.admin = closed(t, redis.NewSentinelClient(&redis.Options{Addr: s.server.Addr}))
}

// hasReplica is a condition for poll: a replica is in sync with the server.
func (s *Server) hasReplica(t testing.TB) (done bool, err error) {
	info, err := s.process.admin.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		return false, fmt.Errorf("redistest: master %s: %w", s.Addr, err)
	}
	replica := info["Replication"]["slave0"]
	if !strings.Contains(replica, "state=online") {
		return false, fmt.Errorf("redistest: replica of master %s is %q; it must be online", s.Addr, replica)
	}
	return true, nil
}

// watches is a condition for poll: the sentinel could promote the replica.
func (s *Sentinel) watches(t testing.TB) (done bool, err error) {
	replicas, err := s.admin.Replicas(t.Context(), group).Result()
	if err != nil {
		return false, fmt.Errorf("redistest: sentinel %s: %w", s.server.Addr, err)
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
		return false, fmt.Errorf("redistest: sentinel %s must have one healthy replica; it has %v", s.server.Addr, replicas)
	}
	return true, nil
}

// Client returns a client of whichever node is the master, with the library's
// defaults, which edit may change. It is closed when t ends.
func (s *Sentinel) Client(t testing.TB, edit ...func(*redis.FailoverOptions)) *redis.Client {
	opts := &redis.FailoverOptions{MasterName: group, SentinelAddrs: []string{s.server.Addr}}
	for _, e := range edit {
		e(opts)
	}
	return closed(t, redis.NewFailoverClient(opts))
}

// Promote makes the sentinel fail over, while the old master still runs. When it
// returns, Replica is the master, the sentinel tells so, and the two fields are
// swapped. The sentinel makes the old master a replica a little later; until then
// it still takes writes, which are lost.
func (s *Sentinel) Promote(t testing.TB) {
	t.Helper()
	// The sentinel refuses until it has a replica that is fit.
	err := poll(func() (bool, error) {
		err := s.admin.Failover(t.Context(), group).Err()
		return err == nil, err
	})
	if err == nil {
		err = poll(func() (bool, error) { return s.promoted(t) })
	}
	if err != nil {
		t.Fatalf("redistest: promotion of %s: %v", s.Replica.Addr, err)
	}
	s.Master, s.Replica = s.Replica, s.Master
}

// promoted is a condition for poll: the replica and the sentinel both say that it
// is the master.
func (s *Sentinel) promoted(t testing.TB) (done bool, err error) {
	info, err := s.Replica.process.admin.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		return false, err
	}
	if role := info["Replication"]["role"]; role != "master" {
		return false, fmt.Errorf("its role is %s", role)
	}
	addr, err := s.admin.GetMasterAddrByName(t.Context(), group).Result()
	if err != nil {
		return false, err
	}
	if got := net.JoinHostPort(addr[0], addr[1]); got != s.Replica.Addr {
		return false, fmt.Errorf("the sentinel's master is %s", got)
	}
	return true, nil
}
