package main

import (
	"path"
	"strconv"
	"strings"
)

// A count says how much of the code a path uses.
type count struct {
	functions               int // that are entered
	files, fileReturns      int // that functions are in, and how often another file comes back to one
	packages, packageReturn int // likewise
}

// countPath counts the files that a path enters, in their order.
func countPath(entered []string) count {
	c := count{functions: len(entered)}
	c.files, c.fileReturns = countReturns(entered)
	packages := make([]string, len(entered))
	for i, file := range entered {
		packages[i] = path.Dir(file)
	}
	c.packages, c.packageReturn = countReturns(packages)
	return c
}

// countReturns returns how many different names there are, and how often a name follows another one although
// it was there before.
func countReturns(names []string) (different, returns int) {
	seen := map[string]bool{}
	last := ""
	for _, name := range names {
		switch {
		case name == last:
		case seen[name]:
			returns++
		default:
			seen[name] = true
		}
		last = name
	}
	return len(seen), returns
}

// row returns the row of a table.
func (c count) row(name string) string {
	cells := []string{name}
	for _, n := range []int{c.functions, c.files, c.fileReturns, c.packages, c.packageReturn} {
		cells = append(cells, strconv.Itoa(n))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
