package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// simulated are the counts of valgrind's cachegrind that are printed, by their names in its file. A miss is that of one
// cache line.
var simulated = []struct {
	column string
	events []string
}{
	{"instructions", []string{"Ir"}},
	{"misses of L1 code", []string{"I1mr"}},
	{"misses of L1 data", []string{"D1mr", "D1mw"}},
	{"misses of the last cache", []string{"ILmr", "DLmr", "DLmw"}},
}

// Rounds of the two runs whose difference is printed, which has no start of the server in it.
const (
	fewRounds  = 1_000
	manyRounds = 3_000
)

// instructions prints what the servers in Go execute for a request and its reply, without the kernel. The counts hardly depend
// on the machine and on what else it does, unlike times.
func instructions(cfg config) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		fmt.Println("instructions is skipped: valgrind is not installed")
		return
	}
	var columns []string
	for _, s := range simulated {
		columns = append(columns, s.column)
	}
	for _, at := range cfg.cells {
		t := newTable(fmt.Sprintf("round trips %v, simulated: per message", at), "%.1f", columns...)
		for _, c := range cfg.contenders {
			if c.command != nil {
				continue // valgrind does not run what compiles at run time
			}
			few, many := simulate(c, at, fewRounds), simulate(c, at, manyRounds)
			for _, s := range simulated {
				n := 0
				for _, event := range s.events {
					n += many[event] - few[event]
				}
				t.add(c.name, s.column, float64(n)/float64((manyRounds-fewRounds)*at.window))
			}
		}
		t.print()
	}
}

// simulate returns what cachegrind counts in a server while its clients, one after the other, send rounds of requests.
func simulate(c contender, at cell, rounds int) map[string]int {
	dir, err := os.MkdirTemp("", "instructions")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "counts")
	p := start(c, setup{prefix: []string{"valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=" + file}})
	requests := newRequests(c, at.window, p.encode)
	clients := make([]*client, at.conns)
	for i := range clients {
		clients[i], err = dial(p, c)
		check(err)
	}
	for round := range rounds {
		cl := clients[round%len(clients)]
		_, err := cl.conn.Write(requests.burst(at.window))
		check(err)
		check(cl.await(at.window))
	}
	for _, cl := range clients {
		cl.close()
	}
	check(p.in.Close())
	check(p.cmd.Wait())
	return readCounts(file)
}

// readCounts reads the sums of a file of cachegrind.
func readCounts(file string) map[string]int {
	text, err := os.ReadFile(file)
	check(err)
	var events, sums []string
	for line := range strings.Lines(string(text)) {
		switch name, values, _ := strings.Cut(line, ":"); name {
		case "events":
			events = strings.Fields(values)
		case "summary":
			sums = strings.Fields(values)
		}
	}
	counts := map[string]int{}
	for i, sum := range sums {
		counts[events[i]], err = strconv.Atoi(sum)
		check(err)
	}
	return counts
}
