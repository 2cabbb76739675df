package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A process is a running redis-server. No goroutine of this package belongs to
// it: the shared one would look like a leak to tests that count goroutines.
type process struct {
	port   int
	cmd    *exec.Cmd
	guard  *exec.Cmd     // kills cmd if this process ends before kill is called
	admin  *redis.Client // never retries
	log    bytes.Buffer  // what cmd prints; to be read once it has ended
	paused bool
	end    sync.Once
}

// Others pick ports by the same dice, and Redis itself is the best judge of
// whether one is free: a process that exits at once is tried again elsewhere.
const attempts = 10

var errExited = errors.New("it exited")

// boot starts a redis-server on a port that port returns and with the arguments
// that args returns. It answers commands when boot returns.
func boot(port func() int, args func(port int) []string) (*process, error) {
	var err error
	for range attempts {
		var p *process
		at := port()
		if p, err = start(at, args(at)); !errors.Is(err, errExited) {
			return p, err
		}
	}
	return nil, err
}

func start(port int, args []string) (*process, error) {
	p := &process{port: port, cmd: exec.Command(program, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redistest: start of %s: %w", program, err)
	}
	p.admin = redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: -1})
	var err error
	if p.guard, err = guard(p.cmd.Process.Pid); err == nil {
		err = poll(p.ready)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("redistest: start of %s %q: %w; its output:\n%s", program, args, err, &p.log)
	}
	return p, nil
}

func (p *process) addr() string { return net.JoinHostPort(host, strconv.Itoa(p.port)) }

// ready is a condition for poll. It asks who answers, because the port may be
// another server's.
func (p *process) ready() (done bool, err error) {
	if exited(p.cmd.Process) {
		return true, errExited
	}
	// The client would log every refused connection.
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return false, err
	}
	_ = conn.Close()
	info, err := p.admin.InfoMap(context.Background(), "server").Result()
	if err != nil {
		return false, err
	}
	if pid := info["Server"]["process_id"]; pid != strconv.Itoa(p.cmd.Process.Pid) {
		return false, fmt.Errorf("%s is the port of process %s", p.addr(), pid)
	}
	return true, nil
}

// kill ends the process. The guard goes second: only while nobody has waited for
// the process is its id certain not to be another's.
func (p *process) kill() {
	p.end.Do(func() {
		_ = p.cmd.Process.Kill()
		if p.guard != nil && p.guard.Process != nil {
			_ = p.guard.Process.Kill()
			_ = p.guard.Wait()
		}
		_ = p.cmd.Wait()
		_ = p.admin.Close()
	})
}
