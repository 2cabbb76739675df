package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A report is what there is to tell.
type report struct {
	Trace      about
	Policies   []replay.Result
	Suggestion *suggestion
}

// A suggestion is a policy that refuses few keys, and what there is to choose from.
type suggestion struct {
	Share      replay.Share
	Within     time.Duration
	Candidates []replay.Candidate
	Best       int
	Played     *replay.Result // nil if the trace cannot be read twice
}

// Policy returns the policy that is suggested.
func (s *suggestion) Policy() ratelimit.Policy { return s.Candidates[s.Best].Policy }

func (r *report) write(w io.Writer, json bool) error {
	if json {
		return r.writeJSON(w)
	}
	var b strings.Builder
	r.Trace.print(&b)
	if len(r.Policies) > 0 {
		b.WriteByte('\n')
		printResults(&b, r.Policies, r.Trace.Keys)
	}
	if r.Suggestion != nil {
		b.WriteByte('\n')
		r.Suggestion.print(&b, r.Trace.Keys)
	}
	if len(r.Policies) > 0 || r.Suggestion != nil && r.Suggestion.Played != nil {
		b.WriteString("\nfor good: the cost is above the capacity; worst wait: of the others; p50 to max: refusals of a key, over all keys\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *about) print(b *strings.Builder) {
	keys := counted(a.Keys, "key")
	switch {
	case a.Per == replay.PerType:
		keys = counted(a.Keys, "type")
	case a.Per == replay.PerKeyAndType && a.Typed:
		keys += " (each with its type)"
	}
	fmt.Fprintf(b, "%s: %s of %s, in %s from %s\n", a.Name, counted(a.Calls, "call"), keys,
		short(a.Last.Sub(a.First)), a.First.Format("2006-01-02T15:04:05.999999Z"))
	if a.BadLines > 0 {
		fmt.Fprintf(b, "bad lines: %s of %s, which were not played\n", grouped(a.BadLines), grouped(a.Lines))
	}
	if a.Unsorted > 0 {
		fmt.Fprintf(b, "out of order: %s, by up to %s; %s of them within their bucket, which count as of its latest time\n",
			counted(a.Unsorted, "call"), short(a.Furthest), grouped(a.LateInKey))
	}
	if a.Ignored != "" {
		fmt.Fprintf(b, "columns without a meaning here: %s\n", a.Ignored)
	}
}

func printResults(b *strings.Builder, results []replay.Result, keys int64) {
	rows := [][]string{{"policy", "admitted", "refused", "", "for good", "keys refused", "", "worst wait", "p50", "p90", "p99", "max"}}
	for _, r := range results {
		rows = append(rows, []string{
			r.Policy.String(), grouped(r.Admitted), grouped(r.Refused), percent(r.Refused, r.Admitted+r.Refused), grouped(r.Never),
			grouped(r.KeysRefused), percent(r.KeysRefused, keys), short(r.WorstWait),
			grouped(r.PerKey.P50), grouped(r.PerKey.P90), grouped(r.PerKey.P99), grouped(r.PerKey.Max),
		})
	}
	printTable(b, rows)
}

func (s *suggestion) print(b *strings.Builder, keys int64) {
	fmt.Fprintf(b, "smallest bursts that never refuse %s %% of the keys:\n", s.Share.Percent())
	rows := [][]string{{"policy", "fills in", "most in " + short(s.Within), "keys refused", "", ""}}
	for i, c := range s.Candidates {
		mark := ""
		if i == s.Best {
			mark = "<"
		}
		rows = append(rows, []string{
			c.Policy.String(), short(c.FillsIn), strconv.FormatFloat(c.Most, 'f', -1, 64),
			grouped(c.KeysRefused), percent(c.KeysRefused, keys), mark,
		})
	}
	printTable(b, rows)
	fmt.Fprintf(b, "the smallest policy, by what one key can take in %s: -policy '%v'\n\n", short(s.Within), s.Policy())
	if s.Played == nil {
		b.WriteString("It was not played: the trace cannot be read twice, unless it is a file.\n")
		return
	}
	printResults(b, []replay.Result{*s.Played}, keys)
}

// printTable aligns columns, the first to the left and all others to the right.
func printTable(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// counted writes a number of things.
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(n) + " " + thing
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "0.00 %"
	}
	return strconv.FormatFloat(float64(part)*100/float64(whole), 'f', 2, 64) + " %"
}

// short writes a duration without zeros at its end: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}
