package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// figuresFile has the figures that documents quote. A test of the root package compares them.
const figuresFile = "figures.json"

// A figure is a median of a benchmark. Its name is "TABLE: ROW, COLUMN" for a value,
// "TABLE: ROW / ROW, COLUMN" for a ratio, and "TABLE: ROW - ROW, COLUMN" for a difference.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Machine string  `json:"machine"`
}

// figures are those that this run updates; nil without -update.
var figures []figure

// command is what the running suite is started with.
var command string

// readFigures begins an update of the file.
func readFigures() {
	text, err := os.ReadFile(figuresFile)
	check(err)
	check(json.Unmarshal(text, &figures))
}

// measureFor makes the figures of a suite name its command.
func measureFor(suite string) {
	command = "go run -C internal/benchmarks ."
	flag.Visit(func(f *flag.Flag) {
		if f.Name != updateFlag {
			command += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	command += " " + suite
}

// record sets the figure with the name, if the file has one.
func record(name string, value float64) {
	for i := range figures {
		if f := &figures[i]; f.Name == name && !math.IsNaN(value) && !math.IsInf(value, 0) {
			f.Value, _ = strconv.ParseFloat(strconv.FormatFloat(value, 'g', 4, 64), 64)
			f.Command, f.Date = command, time.Now().UTC().Format(time.DateOnly)
			f.Machine = machine()
		}
	}
}

// writeFigures writes the file with one figure per line.
func writeFigures() {
	if figures == nil {
		return
	}
	lines := make([]string, len(figures))
	for i, f := range figures {
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		check(encoder.Encode(f))
		lines[i] = strings.TrimSpace(line.String())
	}
	check(os.WriteFile(figuresFile, []byte("[\n"+strings.Join(lines, ",\n")+"\n]\n"), 0o644)) //nolint:gosec // a file of the repository
}
