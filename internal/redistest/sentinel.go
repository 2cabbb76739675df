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

// A Sentinel is a sentinel process that monitors a master and its replica.
type Sentinel struct {
	Master  *Server // the master after StartSentinel or the last Promote
	Replica *Server

	server *Server
	admin  *redis.SentinelClient
}

// group is the sentinel's name for the master and its replica.
const group = "main"

// StartSentinel starts a master, its replica and a sentinel. The sentinel fails over after the
// master has not answered for 500 milliseconds. When StartSentinel returns, the replica is in sync
// and can be promoted. The processes are killed when the test ends.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	requireRedis(t)
	s := &Sentinel{Master: Start(t)}
	s.Replica = Start(t, "--replicaof", host+" "+strconv.Itoa(s.Master.process.port))
	// A sentinel asks its master for replicas when it starts and then only every ten seconds.
	if err := poll(func() (bool, error) { return s.Master.hasReplica(t) }); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if err := poll(func() (bool, error) { return s.canPromote(t) }); err != nil {
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
	file := filepath.Join(dir, "sentinel.conf") // the sentinel rewrites this file
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s.server = launch(t, nil, func(port int) []string {
		return []string{file, "--sentinel", "--bind", host, "--port", strconv.Itoa(port), "--dir", dir}
	})
	s.admin = closeAfter(t, redis.NewSentinelClient(&redis.Options{Addr: s.server.Addr}))
}

// hasReplica is a condition for poll. It holds when a replica is in sync with the server.
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

// canPromote is a condition for poll. It holds when the sentinel could promote the replica.
func (s *Sentinel) canPromote(t testing.TB) (done bool, err error) {
	replicas, err := s.admin.Replicas(t.Context(), group).Result()
	if err != nil {
		return false, fmt.Errorf("redistest: sentinel %s: %w", s.server.Addr, err)
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
		return false, fmt.Errorf("redistest: sentinel %s must have one healthy replica; it has %v", s.server.Addr, replicas)
	}
	return true, nil
}

// Client returns a client that follows the master. It has the default options, which edit may
// change. It is closed when t ends.
func (s *Sentinel) Client(t testing.TB, edit ...func(*redis.FailoverOptions)) *redis.Client {
	opts := &redis.FailoverOptions{MasterName: group, SentinelAddrs: []string{s.server.Addr}}
	for _, e := range edit {
		e(opts)
	}
	return closeAfter(t, redis.NewFailoverClient(opts))
}

// Promote makes the sentinel fail over to the replica while the old master still runs. When it
// returns, the sentinel reports the new master, and the fields Master and Replica are swapped. The
// sentinel demotes the old master a little later. Until then the old master accepts writes, which
// are lost.
func (s *Sentinel) Promote(t testing.TB) {
	t.Helper()
	// The sentinel returns an error until it has a replica that it can promote.
	err := poll(func() (bool, error) {
		err := s.admin.Failover(t.Context(), group).Err()
		return err == nil, err
	})
	if err == nil {
		err = poll(func() (bool, error) { return s.promoted(t) })
	}
	if err != nil {
		t.Fatalf("redistest: promote %s: %v", s.Replica.Addr, err)
	}
	s.Master, s.Replica = s.Replica, s.Master
}

// promoted is a condition for poll. It holds when the replica and the sentinel both report the
// replica as the master.
func (s *Sentinel) promoted(t testing.TB) (done bool, err error) {
	info, err := s.Replica.process.admin.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		return false, err
	}
	if role := info["Replication"]["role"]; role != "master" {
		return false, fmt.Errorf("role is %s; it must be master", role)
	}
	addr, err := s.admin.GetMasterAddrByName(t.Context(), group).Result()
	if err != nil {
		return false, err
	}
	if got := net.JoinHostPort(addr[0], addr[1]); got != s.Replica.Addr {
		return false, fmt.Errorf("the sentinel still reports %s as the master", got)
	}
	return true, nil
}
