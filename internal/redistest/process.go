package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A process is a running redis-server. It has no goroutine in this package: tests that check for
// goroutine leaks would report the one of the shared server.
type process struct {
	port     int
	cmd      *exec.Cmd
	watchdog *exec.Cmd     // kills cmd if this process ends before kill is called
	admin    *redis.Client // never retries a command
	log      bytes.Buffer  // output of cmd; read it only after cmd has ended
	paused   bool
	killed   sync.Once
}

// attempts is how many ports boot tries. Other test binaries pick ports at random too, and only an
// attempt to listen shows whether a port is free.
const attempts = 10

var errExited = errors.New("the process exited")

// boot starts a redis-server on the port that port returns, with the arguments that args returns and
// additional variables in its environment.
// If the process exits at once, boot tries again with the next port. When boot returns, the
// server answers commands.
func boot(port func() int, env []string, args func(port int) []string) (*process, error) {
	var err error
	for range attempts {
		var p *process
		n := port()
		if p, err = start(n, env, args(n)); !errors.Is(err, errExited) {
			return p, err
		}
	}
	return nil, err
}

func start(port int, env, args []string) (*process, error) {
	p := &process{port: port, cmd: exec.Command(program, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redistest: start %s: %w", program, err)
	}
	p.admin = redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: -1})
	var err error
	if p.watchdog, err = startWatchdog(p.cmd.Process.Pid); err == nil {
		err = poll(p.ready)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("redistest: start %s %q: %w; its output:\n%s", program, args, err, &p.log)
	}
	return p, nil
}

func (p *process) addr() string { return net.JoinHostPort(host, strconv.Itoa(p.port)) }

// ready is a condition for poll. It compares process IDs, because another server may have the port.
func (p *process) ready() (done bool, err error) {
	if exited(p.cmd.Process) {
		return true, errExited
	}
	// The Redis client would log every refused connection, so this dials without it.
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return false, err
	}
	_ = conn.Close()
	info, err := p.admin.InfoMap(context.Background(), "server", "persistence").Result()
	if err != nil {
		return false, err
	}
	if pid := info["Server"]["process_id"]; pid != strconv.Itoa(p.cmd.Process.Pid) {
		return false, fmt.Errorf("%s belongs to process %s", p.addr(), pid)
	}
	if info["Persistence"]["loading"] == "1" { // INFO is answered before the data has been loaded
		return false, fmt.Errorf("%s is loading its data", p.addr())
	}
	return true, nil
}

// kill ends the process. The watchdog must end before cmd.Wait: after Wait, the system may reuse
// the process ID, and the watchdog would kill another process.
func (p *process) kill() {
	p.killed.Do(func() {
		_ = p.cmd.Process.Kill()
		if p.watchdog != nil && p.watchdog.Process != nil {
			_ = p.watchdog.Process.Kill()
			_ = p.watchdog.Wait()
		}
		_ = p.cmd.Wait()
		_ = p.admin.Close()
	})
}
