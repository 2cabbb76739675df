package main

import (
	"fmt"
	"math"
	"slices"
)

// A table collects the values of all passes and prints their medians.
type table struct {
	name    string // of its figures; "" if no document quotes one
	title   string
	format  string // of a median
	columns []string
	rows    []string
	values  map[[2]string][]float64
}

func newTable(title, format string, columns ...string) *table {
	return &table{title: title, format: format, columns: columns, values: map[[2]string][]float64{}}
}

// named sets the name by which the figures file knows the table.
func (t *table) named(name string) *table {
	t.name = name
	return t
}

func (t *table) add(row, column string, value float64) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	at := [2]string{row, column}
	t.values[at] = append(t.values[at], value)
}

func (t *table) get(row, column string) []float64 { return t.values[[2]string{row, column}] }

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// spread returns half the distance between the quartiles: half of the values differ from the median by
// no more, if they differ as much in both directions. It is NaN for fewer than four values.
func spread(values []float64) float64 {
	n := len(values)
	if n < 4 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[n-1-n/4] - sorted[n/4]) / 2
}

func (t *table) print() {
	t.printHead(t.title)
	for _, row := range t.rows {
		t.printRow(row, row, func(column string) (string, float64) {
			m := median(t.get(row, column))
			return fmt.Sprintf(t.format, m), m
		})
	}
}

// printRatios divides Penstock's values by those of each peer, and each peer's values by Bun's, in the
// same pass. The two were measured within seconds, so a disturbance of the machine that lasts for
// minutes affects both. Each ratio has its spread beside it.
func (t *table) printRatios() {
	const ours, fastest = "penstock", "bun"
	t.printRatiosOf("ratio of Penstock to the other", ours, ours+" / %s", func(other []float64, ours []float64) []float64 { return ratios(ours, other) })
	t.printRatiosOf("ratio of the other to Bun", fastest, "%s / "+fastest, ratios)
}

// printRatiosOf prints a ratio of every other row and the given one, if there are both. The format
// makes the name of a ratio from that of the other row.
func (t *table) printRatiosOf(title, row, format string, ratio func(other, row []float64) []float64) {
	if !slices.Contains(t.rows, row) || len(t.rows) == 1 {
		return
	}
	t.printHead(title)
	for _, other := range t.rows {
		if other != row {
			t.printRow(other, fmt.Sprintf(format, other), func(column string) (string, float64) {
				passes := ratio(t.get(other, column), t.get(row, column))
				text := fmt.Sprintf("%.2f", median(passes))
				if s := spread(passes); !math.IsNaN(s) {
					text += fmt.Sprintf(" ±%.2f", s)
				}
				return text, median(passes)
			})
		}
	}
}

func ratios(a, b []float64) []float64 {
	q := make([]float64, min(len(a), len(b)))
	for i := range q {
		q[i] = a[i] / b[i]
	}
	return q
}

func (t *table) printHead(title string) {
	fmt.Printf("\n%s\n%-*s", title, rowWidth, "")
	for _, column := range t.columns {
		fmt.Printf("%*s", width(column), column)
	}
	fmt.Println()
	publishHead(title, t.columns)
}

// printRow prints the values of a row, and records them under the name.
func (t *table) printRow(row, name string, value func(column string) (string, float64)) {
	fmt.Printf("%-*s", rowWidth, row)
	var texts []string
	for _, column := range t.columns {
		text, v := value(column)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			text = "-"
		}
		record(fmt.Sprintf("%s: %s, %s", t.name, name, column), v)
		fmt.Printf("%*s", width(column), text)
		texts = append(texts, text)
	}
	fmt.Println()
	publishRow(row, texts)
}

// printDifference prints what a row has more than another one, divided by a number.
func (t *table) printDifference(row, than string, divisor float64, columns ...string) {
	for _, column := range columns {
		difference := (median(t.get(row, column)) - median(t.get(than, column))) / divisor
		per := ""
		if divisor != 1 {
			per = fmt.Sprintf(" / %.0f", divisor)
		}
		printLine("%s - %s%s, %s: %.1f", row, than, per, column, difference)
		record(fmt.Sprintf("%s: %s - %s, %s", t.name, row, than, column), difference)
	}
}

// rowWidth is the width of the longest name of a row.
const rowWidth = len("centrifuge-go, protobuf") + 1

// width leaves room for a ratio and its spread.
func width(column string) int { return max(len(column)+2, len("12.34 ±0.12")+1) }
