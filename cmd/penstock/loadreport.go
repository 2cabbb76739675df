package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/errors"
)

// The load generator may be what is slow above this part of its processors, and if it sends this
// late, unless answers take more than twice as long.
const (
	maxOwnCPU = 0.8
	maxLate   = 10 * time.Millisecond
)

// write prints the report, and writes it to the files of the flags.
func (f *loadFlags) write(stdout io.Writer, r *load.Report) error {
	var printed, written error
	if f.json != "-" {
		_, printed = io.WriteString(stdout, loadText(r, f.Type != ""))
	}
	if f.json != "" {
		text, err := loadJSON(r)
		switch {
		case err != nil:
			written = err
		case f.json == "-":
			_, written = stdout.Write(text)
		default:
			written = os.WriteFile(f.json, text, 0o644)
		}
	}
	return errors.Join(printed, written, f.draw(r))
}

// loadText returns the report for people. Without messages, it has no lines about them.
func loadText(r *load.Report, messages bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, ", counted(int64(r.Connections), "connection"))
	if messages {
		fmt.Fprintf(&b, "%s in ", counted(r.Sent, "message"))
	}
	fmt.Fprintf(&b, "%s\n", short(r.Elapsed.Round(time.Millisecond)))
	if messages {
		writeAnswers(&b, r)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintf(&b, "refused     %s: %s\n", counted(r.Refused[reason], "connection"), reason)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Lost)) {
		fmt.Fprintf(&b, "lost        %s: close code %d\n", counted(r.Lost[code], "connection"), code)
	}
	if r.Reopened > 0 {
		fmt.Fprintf(&b, "reopened    %s: %s\n", counted(r.Reopened, "connection"), percentilesText(r.Outages))
	}
	if r.Answered > 0 {
		fmt.Fprintf(&b, "latency     %s\n", percentilesText(r.Latency))
	}
	if r.Reach != nil {
		writeReach(&b, r.Reach)
	}
	writeOwn(&b, r)
	return b.String()
}

// writeOwn describes the load generator itself.
func writeOwn(b *strings.Builder, r *load.Report) {
	if r.Sent > 0 {
		fmt.Fprintf(b, "sent late   %s\n", percentilesText(r.Late))
	}
	if r.CPU >= 0 {
		fmt.Fprintf(b, "own CPU     %.0f %% of its processors\n", r.CPU*100)
	}
	if r.CPU > maxOwnCPU || r.Late.P99 > maxLate && r.Late.P99 > r.Latency.P99/2 {
		b.WriteString("warning: the load generator itself was short of CPU, so latencies may be its own; use another machine, or a lower rate\n")
	}
}

func writeAnswers(b *strings.Builder, r *load.Report) {
	fmt.Fprintf(b, "answered    %s, %.1f/s\n", grouped(r.Answered), float64(r.Answered)/max(r.Elapsed.Seconds(), 1e-9))
	for _, code := range slices.Sorted(maps.Keys(r.Rejected)) {
		fmt.Fprintf(b, "rejected    %s %s\n", grouped(r.Rejected[code]), code)
	}
	if r.RetryAfter > 0 {
		fmt.Fprintf(b, "retry after at most %s\n", short(r.RetryAfter))
	}
	fmt.Fprintf(b, "unanswered  %s\nnot sent    %s\n", grouped(r.Unanswered), grouped(r.NotSent))
}

func writeReach(b *strings.Builder, r *load.Reach) {
	if r.Unknown != "" {
		fmt.Fprintf(b, "reach       unknown: %s\n", r.Unknown)
		return
	}
	fmt.Fprintf(b, "reach       %s of %s received", grouped(r.Received), grouped(r.Expected))
	if r.Expected > 0 {
		fmt.Fprintf(b, ", %s %%", percentText(r.Received, r.Expected))
	}
	if r.Duplicates > 0 {
		fmt.Fprintf(b, "; %s", counted(r.Duplicates, "duplicate"))
	}
	b.WriteByte('\n')
	if r.Latency.Max > 0 {
		fmt.Fprintf(b, "delivery    %s\n", percentilesText(r.Latency))
	}
}

// percentText returns a percentage that is 100 only if nothing is missing.
func percentText(part, all int64) string {
	if part == all {
		return "100"
	}
	return fmt.Sprintf("%.2f", min(float64(part)/float64(all)*100, 99.99))
}

func percentilesText(p load.Percentiles) string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", rounded(p.P50), rounded(p.P90), rounded(p.P99), rounded(p.P999), rounded(p.Max))
}

func rounded(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func loadJSON(r *load.Report) ([]byte, error) {
	report := map[string]any{
		"connections": r.Connections, "elapsed": r.Elapsed.Microseconds(), "sent": r.Sent, "answered": r.Answered,
		"unanswered": r.Unanswered, "notSent": r.NotSent, "rejected": r.Rejected, "refused": r.Refused, "lost": r.Lost,
		"reopened": r.Reopened, "outages": percentilesJSON(r.Outages),
		"retryAfter": r.RetryAfter.Microseconds(), "cpu": r.CPU, "latency": percentilesJSON(r.Latency), "sentLate": percentilesJSON(r.Late), "step": r.Step.Microseconds(),
	}
	steps := []map[string]any{}
	for _, s := range r.Steps {
		steps = append(steps, map[string]any{"due": s.Due, "answered": s.Answered, "rejected": s.Rejected, "latency": percentilesJSON(s.Latency)})
	}
	report["steps"] = steps
	if r.Reach != nil {
		report["reach"] = map[string]any{
			"rule": r.Reach.Rule, "expected": r.Reach.Expected, "received": r.Reach.Received, "duplicates": r.Reach.Duplicates,
			"unknown": r.Reach.Unknown, "latency": percentilesJSON(r.Reach.Latency),
		}
	}
	text, err := json.MarshalIndent(report, "", "  ")
	return append(text, '\n'), err
}

func percentilesJSON(p load.Percentiles) map[string]int64 {
	return map[string]int64{
		"p50": p.P50.Microseconds(), "p90": p.P90.Microseconds(), "p99": p.P99.Microseconds(), "p99.9": p.P999.Microseconds(), "max": p.Max.Microseconds(),
	}
}

// progressText is the line on a terminal.
func progressText(p load.Progress) string {
	if p.Opening {
		return fmt.Sprintf("opening: %s", counted(int64(p.Connections), "connection"))
	}
	text := fmt.Sprintf("%s of %s: %s, %s/s answered", short(p.Elapsed.Truncate(time.Second)), short(p.Total), counted(int64(p.Connections), "connection"), grouped(p.Answered))
	if p.Answered > 0 {
		text += fmt.Sprintf(", p50 %s, p99 %s", rounded(p.Latency.P50), rounded(p.Latency.P99))
	}
	if p.Rejected > 0 {
		text += fmt.Sprintf(", %s rejected", grouped(p.Rejected))
	}
	return text
}

// draw writes the plot if -plot is set.
func (f *loadFlags) draw(r *load.Report) error {
	if f.plot == "" {
		return nil
	}
	kind, err := chart.KindOf(f.plot)
	if err != nil {
		return err
	}
	l := chart.Load{Title: fmt.Sprintf("%s, %s", counted(int64(r.Connections), "connection"), counted(r.Sent, "message")), Step: r.Step, Elapsed: r.Elapsed}
	for _, s := range r.Steps {
		l.Due = append(l.Due, float64(s.Due))
		l.Answered = append(l.Answered, float64(s.Answered))
		l.P50 = append(l.P50, s.Latency.P50)
		l.P99 = append(l.P99, s.Latency.P99)
		l.Max = append(l.Max, s.Latency.Max)
	}
	var image bytes.Buffer
	if err := chart.WriteLoad(&image, kind, l); err != nil {
		return err
	}
	return os.WriteFile(f.plot, image.Bytes(), 0o644)
}
