// Command benchmarks measures Penstock and its peers side by side. README.md says
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

// A config is what the flags say.
type config struct {
	passes     int
	contenders []contender
	conns      int // at rest
	cells      []cell
}

func main() {
	serve := flag.String("serve", "", "serve as the named contender (what the program calls itself with)")
	passes := flag.Int("passes", 5, "how often everything is measured")
	only := flag.String("only", "", "comma-separated `contenders`; all if empty")
	conns := flag.Int("conns", 10_000, "`connections` at rest")
	at := flag.String("cells", "1x1,1x16,64x1,64x16,1000x1,1000x16", "round trips: `connections x requests in flight`")
	flag.DurationVar(&measured, "time", measured, "how long a round-trip cell is measured")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: benchmarks [flags] [limiters|roundtrip|idle|fanout|redis ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *serve != "" {
		serveContender(*serve)
		return
	}
	suites := flag.Args()
	if len(suites) == 0 {
		suites = []string{"limiters", "roundtrip", "idle", "fanout", "redis"}
	}
	cfg := config{passes: *passes, contenders: chosen(*only), conns: *conns, cells: parseCells(*at)}
	if os.Getenv(pinned) == "" {
		fmt.Printf("%s; medians of %d interleaved passes\n", runtime.Version(), cfg.passes)
	}
	if i := slices.Index(suites, "limiters"); i >= 0 {
		limiters(cfg) // on all cores
		suites = slices.Delete(suites, i, i+1)
	}
	if len(suites) == 0 {
		return
	}
	onOneCore(suites)
	for _, suite := range suites {
		run(suite, cfg)
	}
}

func run(suite string, cfg config) {
	switch suite {
	case "roundtrip":
		roundTrips(cfg)
	case "idle":
		idle(cfg)
	case "fanout":
		fanOut(cfg)
	case "redis":
		redisLimiters(cfg)
	default:
		fatal(fmt.Errorf("no suite is called %q", suite))
	}
}

// chosen returns the named contenders.
func chosen(only string) []contender {
	if only == "" {
		return contenders
	}
	var found []contender
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })
		if i < 0 {
			fatal(fmt.Errorf("no contender is called %q", name))
		}
		found = append(found, contenders[i])
	}
	return found
}

func parseCells(list string) []cell {
	var cells []cell
	for text := range strings.SplitSeq(list, ",") {
		var c cell
		if _, err := fmt.Sscanf(text, "%dx%d", &c.conns, &c.window); err != nil || c.conns < 1 || c.window < 1 {
			fatal(fmt.Errorf("%q is not CONNECTIONSxREQUESTS", text))
		}
		cells = append(cells, c)
	}
	return cells
}

// pinned is set in a program that has its core already.
const pinned = "BENCHMARKS_PINNED"

// onOneCore leaves the first core to the servers, and starts the program again on
// the second.
func onOneCore(suites []string) {
	taskset, err := exec.LookPath("taskset")
	if os.Getenv(pinned) != "" || err != nil || runtime.NumCPU() < 2 {
		return
	}
	self, err := os.Executable()
	check(err)
	args := slices.Concat([]string{"taskset", "-c", "1", self}, os.Args[1:len(os.Args)-flag.NArg()], suites)
	check(syscall.Exec(taskset, args, append(os.Environ(), pinned+"=1")))
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
