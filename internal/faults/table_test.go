//go:build unix

package faults_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A result is a row of the table.
type result struct {
	fault     string
	effect    string
	excess    float64 // tokens above the bound
	allowed   float64 // of them
	grants    int
	losses    losses
	converged time.Duration
	recovered time.Duration
}

const (
	tableBegin = "<!-- table of faults: begin -->\n"
	tableEnd   = "<!-- table of faults: end -->\n"
)

// table returns a Markdown table.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| fault | effect | tokens granted, above the bound | messages | lost | reported | presence | recovery |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.fault, r.effect, r.tokens(),
			thousands(r.losses.messages), r.lost(), r.reported(), seconds(r.converged), seconds(r.recovered))
	}
	return b.String()
}

// tokens returns how many tokens were granted, and how many above the bound.
func (r *result) tokens() string {
	text := fmt.Sprintf("%s, %.0f", thousands(r.grants), max(r.excess, 0))
	if r.allowed > 0 {
		text += fmt.Sprintf(" (up to %.0f allowed)", r.allowed)
	}
	return text
}

func (r *result) lost() string {
	if r.losses.unsent > 0 {
		return fmt.Sprintf("%s, and %d not sent", thousands(r.losses.lost), r.losses.unsent)
	}
	return thousands(r.losses.lost)
}

func (r *result) reported() string {
	if r.losses.reports == 0 {
		return thousands(r.losses.reported)
	}
	return fmt.Sprintf("%s in %d reports", thousands(r.losses.reported), r.losses.reports)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// thousands returns a number with separators.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
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
		return errors.New("faults: " + file + " has no marks for the table")
	}
	return os.WriteFile(file, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o600)
}
