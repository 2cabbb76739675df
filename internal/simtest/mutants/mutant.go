package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A mutant is a fault of the product.
type mutant struct {
	name, about, file string
	from, to          string // the text in the file, which occurs once, and what replaces it
}

// read returns the mutants of the module in a folder.
func read(root string) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, mutantsFile)) //nolint:gosec // a file of the module
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}

// parse returns the mutants of a text. What is before the first is a comment. Each has the form
//
//	== name
//	what is wrong
//	path/of/the/file.go
//	-----
//	old text
//	-----
//	new text, which may be empty
//	-----
func parse(text string) ([]mutant, error) {
	var mutants []mutant
	names := map[string]bool{}
	blocks := strings.Split("\n"+text, "\n== ")
	for _, block := range blocks[1:] {
		parts := strings.Split(block+"\n", "\n-----\n")
		head := strings.Split(parts[0], "\n")
		if len(parts) != 4 || len(head) != 3 || strings.TrimSpace(parts[3]) != "" {
			return nil, fmt.Errorf("%s: %q is not a mutant", mutantsFile, head[0])
		}
		m := mutant{name: head[0], about: head[1], file: head[2], from: parts[1], to: parts[2]}
		if names[m.name] {
			return nil, fmt.Errorf("%s: there are two mutants %q", mutantsFile, m.name)
		}
		names[m.name] = true
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// apply returns the file of a mutant in the module in a folder with the fault. It fails if the old text does not occur exactly once.
func (m mutant) apply(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	source := string(b)
	if n := strings.Count(source, m.from); m.from == "" || n != 1 {
		return "", fmt.Errorf("%s: its old text occurs %d times in %s", m.name, n, m.file)
	}
	return strings.Replace(source, m.from, m.to, 1), nil
}
