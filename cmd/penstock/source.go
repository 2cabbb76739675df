package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A source is standard input or a file of the trace.
type source struct {
	name       string
	path       string // "" is standard input
	size       int64  // 0 if unknown
	repeatable bool   // can be read again
}

// sources returns the files of the trace in the order in which they are read: a directory stands
// for its files that end in .csv or .jsonl, sorted by name.
func (p *runner) sources() (all []source, err error) {
	if len(p.config.traces) == 0 {
		return []source{{name: "standard input"}}, nil
	}
	for _, path := range p.config.traces {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, newSource(path, info))
			continue
		}
		files, err := sourcesIn(path)
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}

func newSource(path string, info os.FileInfo) source {
	if !info.Mode().IsRegular() { // such as a named pipe
		return source{name: path, path: path}
	}
	return source{name: path, path: path, size: info.Size(), repeatable: true}
}

func sourcesIn(directory string) (all []source, err error) {
	entries, err := os.ReadDir(directory) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !slices.Contains([]string{".csv", ".jsonl"}, filepath.Ext(e.Name())) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, newSource(filepath.Join(directory, e.Name()), info))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the directory contains no file that ends in .csv or .jsonl", directory)
	}
	return all, nil
}

// nameOf returns the name of a trace for the report.
func nameOf(sources []source) string {
	first := sources[0]
	if len(sources) == 1 {
		return first.name
	}
	return fmt.Sprintf("%s and %s", first.name, counted(int64(len(sources)-1), "more file"))
}

func (p *runner) open(s source) (io.ReadCloser, error) {
	if s.path == "" {
		return io.NopCloser(p.stdin), nil
	}
	return os.Open(s.path)
}
