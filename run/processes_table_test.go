//go:build unix

package run_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A processResult is a row of the table.
type processResult struct {
	fault       string
	runs        int
	readers     int // of each run
	items       int // of each run
	interrupted int // runs
	received    int
	wrong       int
	latest      time.Duration // from the fault until all readers have seen the end of its runs
	pause       time.Duration // the longest one of a reader
}

const (
	tableBegin = "<!-- table of faults of runs: begin -->\n"
	tableEnd   = "<!-- table of faults of runs: end -->\n"
)

// processTable returns a Markdown table.
func processTable(results []processResult) string {
	var b strings.Builder
	b.WriteString("| fault | runs × items × readers | interrupted runs | items received | repeated or reordered | end seen within | longest pause of the others |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		end := "–"
		if r.interrupted > 0 {
			end = fmt.Sprintf("%.1f s", r.latest.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %d × %d × %d | %d | %d | %d | %s | %.1f s |\n",
			r.fault, r.runs, r.items, r.readers, r.interrupted, r.received, r.wrong, end, r.pause.Seconds())
	}
	return b.String()
}

// updateTable replaces the table in a file, between its two marks.
func updateTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return errors.New("run: " + file + " has no marks for the table")
	}
	return os.WriteFile(file, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o600)
}
