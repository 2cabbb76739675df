// Package contracttest helps to test that committed files agree with a router's contract.
package contracttest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// update makes Check write the files. Its name has a prefix, because the test binary may have a flag
// update of its own.
var update = flag.Bool("contract.update", false, "write the files that contracttest.Check compares")

// Check fails the test unless the file at path is what package contract generates for the router. It
// reports the lines that differ. With the flag -contract.update, it writes the file instead:
//
//	go test ./web -run Contract -contract.update
//
// The name of the file decides what it contains: TypeScript if it ends with .ts, Python with .py, Kotlin with .kt, an AsyncAPI
// document with asyncapi.json, a JSON Schema with schema.json, the whole contract with contract.json, and its hash with
// contract.hash. The package in Kotlin is the path below a directory kotlin or java: com.example for
// src/main/kotlin/com/example/Contract.kt. Of contract.json, Check also says which differences are breaking and which are
// compatible. A file that does not exist differs. If opts is nil, the zero contract.Options apply. Unless its Comments are
// set, Check reads those in the source of the messages, which it finds with the command go.
func Check(t testing.TB, r *router.Router, path string, opts *contract.Options) {
	t.Helper()
	c, err := build(r, opts)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(c, path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := write(path, want); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	got = bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")) // as git may check it out on Windows
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the router's contract; run the test with -contract.update to write it, and review the change:\n%s", path, changes(got, c)+diff(string(got), string(want)))
	}
}

// build returns the contract of a router, with the comments in its source.
func build(r *router.Router, opts *contract.Options) (*contract.Contract, error) {
	var with contract.Options
	if opts != nil {
		with = *opts
	}
	var s source
	if with.Comments == nil {
		with.Comments = s.comments
	}
	c, err := contract.New(r.Describe(), &with)
	return c, errors.Join(err, s.err)
}

func generate(c *contract.Contract, path string) ([]byte, error) {
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, ".ts"):
		return c.TypeScript(), nil
	case strings.HasSuffix(name, ".py"):
		return c.Python(), nil
	case strings.HasSuffix(name, ".kt"):
		return c.Kotlin(kotlinPackage(path)), nil
	case strings.HasSuffix(name, "asyncapi.json"):
		return c.AsyncAPI(), nil
	case strings.HasSuffix(name, "schema.json"):
		return c.JSONSchema(), nil
	case strings.HasSuffix(name, "contract.json"):
		return c.Document(), nil
	case strings.HasSuffix(name, "contract.hash"):
		return []byte(c.Hash() + "\n"), nil
	default:
		return nil, fmt.Errorf("contracttest: the name of %s must end with .ts, .py, .kt, asyncapi.json, schema.json, contract.json or contract.hash", path)
	}
}

// kotlinPackage returns the package of a file below a directory kotlin or java: com.example for src/main/kotlin/com/example/Contract.kt.
func kotlinPackage(path string) string {
	elements := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
	for i, element := range slices.Backward(elements) {
		if element == "kotlin" || element == "java" {
			return strings.Join(elements[i+1:], ".")
		}
	}
	return ""
}

// changes returns how a contract differs from an earlier one, or "" if that is not the text of a contract.
func changes(earlier []byte, c *contract.Contract) string {
	old, err := contract.Parse(earlier)
	if err != nil {
		return ""
	}
	var b strings.Builder
	last := ""
	for _, change := range old.Changes(c) {
		kind := "compatible with clients of the earlier version"
		if change.Breaking {
			kind = "breaking for clients of the earlier version"
		}
		if kind != last {
			b.WriteString(kind + ":\n")
			last = kind
		}
		b.WriteString("  " + change.Text + "\n")
	}
	if last == "" {
		b.WriteString("no message has changed\n")
	}
	return b.String()
}

// write writes a file, in a directory that it creates if necessary.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644) //nolint:gosec // other programs read it
}

// maxDiffLines bounds a diff.
const maxDiffLines = 60

// diff returns the lines that differ, with their numbers in the file or, for added ones, in what it
// should be. Blocks of equal lines are found greedily, so the diff may be longer than necessary.
func diff(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if i < len(a) && j < len(b) && a[i] == b[j] {
			i, j = i+1, j+1
			continue
		}
		toA, toB := nextEqual(a[i:], b[j:])
		for ; toA > 0; toA-- {
			out = append(out, fmt.Sprintf("- %d: %s", i+1, a[i]))
			i++
		}
		for ; toB > 0; toB-- {
			out = append(out, fmt.Sprintf("+ %d: %s", j+1, b[j]))
			j++
		}
	}
	if n := len(out) - maxDiffLines; n > 0 {
		out = append(out[:maxDiffLines], fmt.Sprintf("… and %d more lines", n))
	}
	return strings.Join(out, "\n")
}

// nextEqual returns how many lines to skip on both sides, in total as few as possible, until a line is
// equal. Without an equal line, these are all.
func nextEqual(a, b []string) (skipA, skipB int) {
	for total := 1; total < len(a)+len(b); total++ {
		for skip := max(0, total-len(b)+1); skip <= total && skip < len(a); skip++ {
			if a[skip] == b[total-skip] {
				return skip, total - skip
			}
		}
	}
	return len(a), len(b)
}
