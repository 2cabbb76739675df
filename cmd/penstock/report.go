package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/limit"
)

// A report is the output of simulate.
type report struct {
	Trace      traceSummary
	Policies   []replay.Result
	Suggestion *suggestion
}

// A suggestion is a suggested policy and the candidates that it was chosen from.
type suggestion struct {
	Share      replay.Share
	Within     time.Duration
	Candidates []replay.Candidate
	Best       int
	Result     *replay.Result // of the suggested policy; nil if the trace cannot be read twice
}

func (s *suggestion) Policy() limit.Policy { return s.Candidates[s.Best].Policy }

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
	results := r.Policies
	if r.Suggestion != nil && r.Suggestion.Result != nil {
		results = append(slices.Clip(results), *r.Suggestion.Result)
	}
	printLegend(&b, results)
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *traceSummary) print(b *strings.Builder) {
	keys := counted(a.Keys, "key")
	switch {
	case a.Per == replay.PerType:
		keys = counted(a.Keys, "type")
	case a.Per == replay.PerKeyAndType && a.Typed:
		keys += " (key and type)"
	}
	fmt.Fprintf(b, "%s: %s of %s, in %s from %s\n", a.Name, counted(a.Requests, "request"), keys,
		short(a.Last.Sub(a.First)), a.First.Format("2006-01-02T15:04:05.999999Z"))
	if a.InvalidLines > 0 {
		fmt.Fprintf(b, "invalid lines: %s of %s, skipped\n", grouped(a.InvalidLines), grouped(a.Lines))
	}
	if a.OutOfOrder > 0 {
		fmt.Fprintf(b, "out of order: %s, by up to %s; %s of them within their bucket, counted at its latest time\n",
			counted(a.OutOfOrder, "request"), short(a.MaxLateness), grouped(a.LateInBucket))
	}
	if a.Ignored != "" {
		fmt.Fprintf(b, "ignored columns: %s\n", a.Ignored)
	}
}

// printResults prints a table, with the columns about delays and overflows only if there are any.
func printResults(b *strings.Builder, results []replay.Result, keys int64) {
	delayed, overflowed := slices.ContainsFunc(results, isDelayed), slices.ContainsFunc(results, isOverflowed)
	header := []string{"policy", "admitted"}
	if delayed {
		header = append(header, "delayed", "longest delay")
	}
	header = append(header, "rejected", "", "never admitted", "keys rejected", "", "worst wait", "p50", "p90", "p99", "max")
	if overflowed {
		header = append(header, "overflowed")
	}
	rows := [][]string{header}
	for _, r := range results {
		row := []string{r.Policy.String(), grouped(r.Admitted)}
		if delayed {
			row = append(row, grouped(r.Delayed), short(r.LongestDelay))
		}
		row = append(row,
			grouped(r.Rejected), percent(r.Rejected, r.Admitted+r.Rejected), grouped(r.NeverAdmitted),
			grouped(r.KeysRejected), percent(r.KeysRejected, keys), short(r.WorstWait),
			grouped(r.PerKey.P50), grouped(r.PerKey.P90), grouped(r.PerKey.P99), grouped(r.PerKey.Max))
		if overflowed {
			row = append(row, grouped(r.Overflowed))
		}
		rows = append(rows, row)
	}
	printTable(b, rows)
}

func isDelayed(r replay.Result) bool { return r.Delayed > 0 }

func isOverflowed(r replay.Result) bool { return r.Overflowed > 0 }

func printLegend(b *strings.Builder, results []replay.Result) {
	if len(results) == 0 {
		return
	}
	b.WriteString("\nnever admitted: the cost exceeds the capacity or maximum; worst wait: of the other rejections; p50 to max: rejections per key\n")
	if slices.ContainsFunc(results, isDelayed) {
		b.WriteString("delayed: admitted after a wait, of at most the longest delay\n")
	}
	if slices.ContainsFunc(results, isOverflowed) {
		b.WriteString("overflowed: requests of keys beyond the maximum that the limiter keeps; they share the limit of one key\n")
	}
}

func (s *suggestion) print(b *strings.Builder, keys int64) {
	fmt.Fprintf(b, "smallest bursts that never reject %s %% of the keys:\n", s.Share.Percent())
	rows := [][]string{{"policy", "full after", "max in " + short(s.Within), "keys rejected", "", ""}}
	for i, c := range s.Candidates {
		mark := ""
		if i == s.Best {
			mark = "<"
		}
		rows = append(rows, []string{
			c.Policy.String(), short(c.FullAfter), strconv.FormatFloat(c.Max, 'f', -1, 64),
			grouped(c.KeysRejected), percent(c.KeysRejected, keys), mark,
		})
	}
	printTable(b, rows)
	fmt.Fprintf(b, "smallest policy, by the tokens that one key can use in %s: -policy '%v'\n\n", short(s.Within), s.Policy())
	if s.Result == nil {
		b.WriteString("No result for this policy: the trace is not a file and cannot be read twice.\n")
		return
	}
	printResults(b, []replay.Result{*s.Result}, keys)
}

// printTable left-aligns the first column and right-aligns the others.
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

// counted formats a number and a noun.
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(n) + " " + thing
}

// grouped formats a number with commas between thousands.
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

// short formats a duration without trailing zero units: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}
