package main

import (
	"fmt"
	"slices"
)

// A table collects the values of all passes and prints their medians.
type table struct {
	title   string
	format  string // of a median
	columns []string
	rows    []string
	values  map[[2]string][]float64
}

func newTable(title, format string, columns ...string) *table {
	return &table{title: title, format: format, columns: columns, values: map[[2]string][]float64{}}
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
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func (t *table) print() {
	t.printHead(t.title)
	for _, row := range t.rows {
		t.printRow(row, t.format, func(column string) float64 { return median(t.get(row, column)) })
	}
}

// printRatios divides Penstock's values by those of each peer in the same pass. The two were measured
// within seconds, so a disturbance of the machine that lasts for minutes affects both.
func (t *table) printRatios() {
	const ours = "penstock"
	if !slices.Contains(t.rows, ours) || len(t.rows) == 1 {
		return
	}
	t.printHead("ratio of Penstock to the other")
	for _, row := range t.rows {
		if row != ours {
			t.printRow(row, "%.2f", func(column string) float64 { return median(ratios(t.get(ours, column), t.get(row, column))) })
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
	fmt.Printf("\n%s\n%-12s", title, "")
	for _, column := range t.columns {
		fmt.Printf("%*s", width(column), column)
	}
	fmt.Println()
}

func (t *table) printRow(row, format string, value func(column string) float64) {
	fmt.Printf("%-12s", row)
	for _, column := range t.columns {
		fmt.Printf("%*s", width(column), fmt.Sprintf(format, value(column)))
	}
	fmt.Println()
}

func width(column string) int { return max(len(column)+2, 9) }
