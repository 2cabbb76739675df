package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// A stage is a part of Penstock's work for a message: the functions whose names contain one of the texts,
// and what they call, except for other stages.
type stage struct {
	name      string
	functions []string
}

// stages are compared with a stack from its innermost function to the outermost one, so the last ones
// get what no other stage has.
var stages = []stage{
	{"system calls: send", []string{"netpoll.sendNow"}},
	{"system calls: receive", []string{"netpoll.recvNow"}},
	{"system calls: wait", []string{"netpoll.epollNow", "netpoll.(*loop).park"}},
	{"garbage collection", []string{"runtime.gcBgMark", "runtime.gcAssist", "runtime.bgsweep", "runtime.bgscavenge", "runtime.wbBufFlush"}},
	{"allocation", []string{"runtime.mallocgc", "runtime.newobject", "runtime.growslice"}},
	{"clock", []string{"time.Now", "time.Since", "time.runtimeNow"}},
	{"JSON: decode", []string{"json.Unmarshal", "jsonplan.(*Plan).Unmarshal"}},
	{"JSON: encode", []string{"json.MarshalWrite", "jsonplan.(*Plan).Append"}},
	{"read frame", []string{"wsconn.(*Conn).Read", "wsconn.(*Conn).Park", "wsconn.(*Conn).next", "wsconn.(*Conn).wholeMessage", "wsconn.(*Conn).readControls", "wsconn.(*socket)", "wsconn.mask"}},
	{"parse head", []string{"penstock/internal/wire.Parse", "wire.(*Head)", "wire.(*headParser)"}},
	{"default limits", []string{"router.(*Conn).chargeMessage"}},
	{"rate limiter", []string{"penstock/middleware/ratelimit."}},
	{"index of calls", []string{"penstock/internal/calls."}},
	{"encode envelope", []string{"penstock/internal/envelope.", "router.encodeReply"}},
	{"queue and write", []string{"penstock/internal/wsconn."}},
	{"handler of the benchmark", []string{"main."}},
	{"rest of the pipeline", []string{"penstock/router.", "penstock/internal/executor.", "penstock/internal/failure."}},
	{"event loop and scheduler", []string{""}},
}

// stagesOf prints where Penstock's CPU time per message goes: the shares of a profile of 10
// measurements, multiplied by the CPU time.
func stagesOf(cfg config) {
	c := find(contenders, "penstock")
	var columns []string
	for _, at := range cfg.cells {
		columns = append(columns, at.String())
	}
	measureStages(cfg, c, newTable("round trips: CPU of Penstock per message, µs", "%.2f", columns...))
	defer func(n int) { distinct = n }(distinct)
	c.request, distinct = tell, 1
	measureStages(cfg, c, newTable("events with one text: CPU of Penstock per message, µs", "%.2f", columns...))
}

func measureStages(cfg config, c contender, t *table) {
	dir, err := os.MkdirTemp("", "stages")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	defer func(d time.Duration) { measured = d }(measured)
	measured *= 10
	for _, at := range cfg.cells {
		path := filepath.Join(dir, at.String())
		p := start(c, setup{})
		warmUp(p, c)
		check(os.Setenv(profileTo, path))
		micros := roundTrip(p, c, at).cpuMicros
		check(os.Unsetenv(profileTo))
		p.stop()
		total := int64(0)
		nanos := nanosOfStages(path)
		for _, n := range nanos {
			total += n
		}
		for i, s := range stages {
			t.add(s.name, at.String(), micros*float64(nanos[i])/float64(total))
		}
		t.add("all", at.String(), micros)
	}
	t.print()
}

// nanosOfStages returns the CPU time of each stage in a profile.
func nanosOfStages(path string) []int64 {
	f, err := os.Open(path)
	check(err)
	defer func() { check(f.Close()) }()
	prof, err := profile.Parse(f)
	check(err)
	nanos := make([]int64, len(stages))
	for _, sample := range prof.Sample {
		nanos[stageOf(sample)] += sample.Value[1]
	}
	return nanos
}

// stageOf returns the index of the stage that the innermost function of a stage belongs to.
func stageOf(sample *profile.Sample) int {
	for _, location := range sample.Location {
		for _, line := range location.Line {
			for i, s := range stages[:len(stages)-1] {
				for _, name := range s.functions {
					if strings.Contains(line.Function.Name, name) {
						return i
					}
				}
			}
		}
	}
	return len(stages) - 1
}
