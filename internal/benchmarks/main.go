// Command benchmarks measures Penstock and comparable libraries in one run. README.md describes
// what it measures and how.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// A config holds the values of the flags.
type config struct {
	passes     int
	contenders []contender
	conns      int // idle connections
	tlsConns   int // idle TLS connections
	cells      []cell
}

func main() {
	serve := flag.String("serve", "", "run the server of the named contender; the program sets this for its child processes")
	flood := flag.String("flood", "", "flood the server of the contender -only at this `address`; the program sets this for its child processes")
	passes := flag.Int("passes", 5, "number of measurements")
	only := flag.String("only", "", "comma-separated `contenders`; all if empty")
	conns := flag.Int("conns", 9000, "number of idle `connections`, and of clients of a storm")
	tlsConns := flag.Int("tlsconns", 2000, "number of idle TLS `connections`")
	at := flag.String("cells", "1x1,1x16,64x1,64x16,1000x1,1000x16", "loads of the roundtrip suite: `connections x requests in flight`")
	flag.IntVar(&distinct, "texts", distinct, "number of different requests; 1 sends the same text again and again")
	flag.DurationVar(&measured, "time", measured, "duration of a measurement in the roundtrip, redis and history suites")
	flag.DurationVar(&stormSpread, "spread", stormSpread, "time within which the clients return in the deploy of the storms suite; 0 if the server decides")
	update := flag.Bool(updateFlag, false, "write the tables to "+resultsFile+", and the medians that "+figuresFile+" names to that file")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: benchmarks [flags] ["+strings.Join(allSuites, "|")+" ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *serve != "" {
		serveContender(*serve)
		return
	}
	if distinct < 1 {
		fatal(fmt.Errorf("-texts is %d; it must be at least 1", distinct))
	}
	if *flood != "" {
		floodServer(*flood, findContenders(*only)[0])
		return
	}
	suites := flag.Args()
	if len(suites) == 0 {
		suites = slices.Clone(allSuites)
	}
	cfg := config{passes: *passes, contenders: findContenders(*only), conns: *conns, tlsConns: *tlsConns, cells: parseCells(*at)}
	if os.Getenv(pinned) == "" {
		fmt.Printf("%s; medians of %d interleaved passes\n", runtime.Version(), cfg.passes)
	}
	if *update {
		readFigures()
		readResults()
	}
	if i := slices.Index(suites, "limiters"); i >= 0 {
		measureFor("limiters")
		limiters(cfg) // needs all cores
		writeResults("limiters")
		suites = slices.Delete(suites, i, i+1)
	}
	if len(suites) == 0 {
		return
	}
	runOnSecondCore(suites)
	raiseFileLimit()
	if slices.ContainsFunc(suites, func(suite string) bool { return !slices.Contains(ownSuites, suite) }) {
		cfg.contenders = runnable(cfg.contenders)
	}
	for _, suite := range suites {
		measureFor(suite)
		run(suite, cfg)
		writeFigures()
		writeResults(suite)
	}
}

// allSuites are those that run without arguments, in this order.
var allSuites = []string{
	"limiters", "roundtrip", "events", "stages", "instructions", "compression",
	"idle", "idletls", "tls", "tlshandshake", "tlsstorm", "fanout", "broadcast", "latency", "handshake", "pings", "memory", "fallback",
	"presence", "sessions", "nodes", "redis", "history", "storms", "cluster", "clients",
}

// updateFlag is the name of the flag that updates the files of figures and of results.
const updateFlag = "update"

// ownSuites measure Penstock alone, or limiters and brokers, so they start no contender.
var ownSuites = []string{"stages", "pings", "memory", "fallback", "presence", "sessions", "nodes", "redis", "history", "cluster", "clients"}

func run(suite string, cfg config) {
	switch suite {
	case "roundtrip":
		roundTrips(cfg)
	case "events":
		events(cfg)
	case "stages":
		stagesOf(cfg)
	case "instructions":
		instructions(cfg)
	case "compression":
		compression(cfg)
	case "idle":
		idle(cfg)
	case "idletls":
		idleTLS(cfg)
	case "tls":
		roundTripsTLS(cfg)
	case "tlshandshake":
		handshakeTLS(cfg)
	case "tlsstorm":
		tlsStorm(cfg)
	case "fanout":
		fanOut(cfg)
	case "broadcast":
		broadcast(cfg)
	case "latency":
		latency(cfg)
	case "handshake":
		handshake(cfg)
	case "pings":
		pings(cfg)
	case "memory":
		memoryPerConn(cfg)
	case "fallback":
		fallback(cfg)
	case "presence":
		presence(cfg)
	case "sessions":
		sessions(cfg)
	case "nodes":
		nodes(cfg)
	case "history":
		histories(cfg)
	case "redis":
		redisLimiters(cfg)
	case "storms":
		storms(cfg)
	case "cluster":
		clusters(cfg)
	case "clients":
		receivers(cfg)
	default:
		fatal(fmt.Errorf("unknown suite %q", suite))
	}
}

// findContenders returns the contenders with the given comma-separated names, or all of them.
func findContenders(only string) []contender {
	if only == "" {
		return contenders
	}
	var found []contender
	for name := range strings.SplitSeq(only, ",") {
		found = append(found, find(slices.Concat(contenders, prototypes), name))
	}
	return found
}

func find(all []contender, name string) contender {
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if i < 0 {
		fatal(fmt.Errorf("unknown contender %q", name))
	}
	return all[i]
}

func parseCells(list string) []cell {
	var cells []cell
	for text := range strings.SplitSeq(list, ",") {
		var c cell
		if _, err := fmt.Sscanf(text, "%dx%d", &c.conns, &c.window); err != nil || c.conns < 1 || c.window < 1 {
			fatal(fmt.Errorf("cell %q is invalid; it must be CONNECTIONSxREQUESTS, such as 64x16", text))
		}
		cells = append(cells, c)
	}
	return cells
}

// pinned is an environment variable that is set if the process is already pinned to a core.
const pinned = "BENCHMARKS_PINNED"

// runOnSecondCore restarts the program on the second core and leaves the first one to the servers.
func runOnSecondCore(suites []string) {
	taskset, err := exec.LookPath("taskset")
	if os.Getenv(pinned) != "" || err != nil || runtime.NumCPU() < 2 {
		return
	}
	self, err := os.Executable()
	check(err)
	args := slices.Concat([]string{"taskset", "-c", "1", self}, os.Args[1:len(os.Args)-flag.NArg()], suites)
	check(syscall.Exec(taskset, args, append(os.Environ(), pinned+"=1")))
}

// raiseFileLimit raises the number of open files to the maximum, for this process and the servers.
func raiseFileLimit() {
	var files syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	files.Cur = files.Max
	check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
}

func check(err error) {
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "benchmarks:", err)
	os.Exit(1)
}
