package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stats are the statistics of a server process.
type Stats struct {
	CPU        time.Duration // user and system
	User       time.Duration
	Allocs     uint64
	RSS        int64  // bytes
	Heap       uint64 // bytes
	Stack      uint64 // bytes
	Slab       int64  // bytes of the kernel, of all processes
	Goroutines int
}

// serveContender is the main function of a server process. It prints its address and then executes
// commands from standard input, one per line.
func serveContender(name string) {
	c := find(slices.Concat(contenders, prototypes, variants, memoryVariants, stormVariants, clusterVariants, clientVariants), name)
	publications = bytes.Split([]byte(os.Getenv(publicationsName)), []byte{'\n'})
	handler, publish := c.serve()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	addr := listener.Addr()
	if os.Getenv(wrapsConns) != "" {
		listener = wrappingListener{listener}
	}
	if pem := []byte(os.Getenv(certificate)); len(pem) > 0 {
		cert, err := tls.X509KeyPair(pem, pem)
		check(err)
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { check(server.Serve(listener)) }()
	fmt.Println(addr)
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		verb, arg, _ := strings.Cut(commands.Text(), " ")
		switch verb {
		case "stats":
		case "delays":
			check(json.NewEncoder(os.Stdout).Encode(measureDelays()))
			continue
		case "collect":
			for range 3 {
				runtime.GC()
			}
			debug.FreeOSMemory()
		case "publish":
			n, _ := strconv.Atoi(arg)
			publish(n)
		case "deploy":
			shutDown(handler)
		case "profile":
			startProfile(arg)
		case "heap":
			writeHeap(arg)
		}
		check(json.NewEncoder(os.Stdout).Encode(stats()))
	}
	stopProfile()
}

// wrapsConns is an environment variable that is set if the server hides its TCP connections from
// Penstock, as listeners for the PROXY protocol do.
const wrapsConns = "BENCHMARKS_WRAPS_CONNS"

type wrappingListener struct{ net.Listener }

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return struct{ net.Conn }{conn}, err
}

func stats() Stats {
	usage := ownUsage()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	statm, err := os.ReadFile("/proc/self/statm")
	check(err)
	pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return Stats{
		CPU:        time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		User:       time.Duration(usage.Utime.Nano()),
		Allocs:     mem.Mallocs,
		RSS:        pages * int64(os.Getpagesize()),
		Heap:       mem.HeapAlloc,
		Stack:      mem.StackInuse,
		Slab:       slabBytes(),
		Goroutines: runtime.NumGoroutine(),
	}
}

// A process is a child of this process: a server, or the client of fairness.
type process struct {
	addr     string
	secure   bool                   // TLS
	deflates bool                   // clients offer permessage-deflate
	window   int                    // in bytes, of clients that compress
	sessions tls.ClientSessionCache // nil: clients do not resume TLS sessions
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
}

// A setup is how a server process runs.
type setup struct {
	secure   bool
	deflates bool
	reply    string // if deflates is true, the beginning of the first reply
	procs    int    // processors; 1 if it is 0, and the second one is the client's
	env      []string
	prefix   []string // of the command
}

// start starts a contender's server, on the first core if the client is pinned to the second.
func start(c contender, how setup) *process {
	args, err := c.arguments()
	check(err)
	args = slices.Concat(how.prefix, args)
	if os.Getenv(pinned) != "" {
		args = append([]string{"taskset", "-c", fmt.Sprint("0-", max(how.procs, 1)-1)}, args...)
	}
	environment := slices.Concat(os.Environ(), []string{publicationsName + "=" + string(bytes.Join(publications, []byte{'\n'}))}, how.env, c.env)
	if how.secure {
		environment = append(environment, certificate+"="+newCertificate())
	}
	p := spawn(args, environment)
	p.secure, p.deflates = how.secure, how.deflates
	p.addr = strings.TrimSpace(p.line())
	if p.deflates {
		checkCompression(p, c, how.reply)
	}
	return p
}

// spawn starts a process that executes commands from standard input.
func spawn(args, environment []string) *process {
	p := &process{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env = environment
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	check(err)
	out, err := p.cmd.StdoutPipe()
	check(err)
	check(p.cmd.Start())
	p.out = bufio.NewReader(out)
	return p
}

func (c contender) arguments() ([]string, error) {
	if c.command != nil {
		return c.command()
	}
	self, err := os.Executable()
	return []string{self, "-serve", c.name}, err
}

func (p *process) line() string {
	line, err := p.out.ReadString('\n')
	check(err)
	return line
}

// command executes a command and returns the server's statistics after it.
func (p *process) command(line string) (s Stats) {
	p.query(line, &s)
	return s
}

// query executes a command and decodes what the server prints into result.
func (p *process) query(line string, result any) {
	_, err := fmt.Fprintln(p.in, line)
	check(err)
	check(json.Unmarshal([]byte(p.line()), result))
}

func (p *process) stop() {
	_ = p.in.Close()
	done := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		_ = p.cmd.Process.Kill()
		<-done
	}
}
