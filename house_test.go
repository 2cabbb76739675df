package penstock_test

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Budgets of lines. A package that needs more should become two; one that is above its budget today
// has its own, which only becomes smaller.
const (
	maxPackageLines = 4_000
	maxFileLines    = 400
	maxExported     = 60
)

var (
	ownBudgets = map[string]int{
		"router":            10_300, // with the description of HTTPFallback, and with what waits: starts of subscriptions, stored grants, answers that Revoke withholds
		"client":            4_250,  // calls that outlive two nodes, pacing that explains itself, and sizes that servers announce
		"limit/limittest":   6_000,  // cases of a suite, and a limiter with faults
		"broker/brokertest": 5_700,  // likewise, and the simulated store
	}
	ownExported = map[string]int{
		"limit":  78,  // 2 of them for the bounds of exact undoing
		"router": 110, // 5 of them for HTTPFallback
	}
	longFiles = map[string]int{
		"outbound/outboundtest/cases.go": 420,
	}
)

// floors returns the floor of each package, as docs/architecture.md documents it.
func floors(t *testing.T) map[string]int {
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	floors := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]*) \|`).FindAllStringSubmatch(string(text), -1) {
		floor, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			floors[name[1]] = floor
		}
	}
	return floors
}

func TestHouse_ImportsGoToALowerFloor(t *testing.T) {
	floors := floors(t)
	packages, err := listPackages()
	require.NoError(t, err)
	for path, pkg := range packages {
		name, ok := strings.CutPrefix(path, module+"/")
		if !pkg.isOurs() || !ok {
			continue
		}
		if assert.Contains(t, floors, name, "docs/architecture.md must have a row for the package") {
			for _, imported := range pkg.imports {
				if other, ok := strings.CutPrefix(imported, module+"/"); ok {
					assert.Less(t, floors[other], floors[name], "%s imports %s, which is not on a lower floor", name, other)
				}
			}
		}
	}
	for name := range floors {
		assert.Contains(t, packages, module+"/"+name, "docs/architecture.md has a row for a package that does not exist")
	}
}

func TestHouse_SizesOfPackagesAndFiles(t *testing.T) {
	packages, err := listPackages()
	require.NoError(t, err)
	for path, pkg := range packages {
		name, ok := strings.CutPrefix(path, module+"/")
		if !pkg.isOurs() || !ok {
			continue
		}
		files, err := filepath.Glob(name + "/*.go")
		require.NoError(t, err)
		total := 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if strings.HasSuffix(file, "_test.go") || bytes.HasPrefix(text, []byte("// Code generated ")) {
				continue
			}
			lines := bytes.Count(text, []byte("\n"))
			total += lines
			assert.LessOrEqual(t, lines, budget(longFiles, filepath.ToSlash(file), maxFileLines), "%s is too long: a file has one topic", file)
		}
		assert.LessOrEqual(t, total, budget(ownBudgets, name, maxPackageLines), "%s is too large: move a part of it to a package of its own", name)
	}
}

func budget(own map[string]int, name string, usual int) int {
	if lines, ok := own[name]; ok {
		return lines
	}
	return usual
}

// TestHouse_ExportedNames counts what a reader of a package has to know. A package that needs more says why here.
func TestHouse_ExportedNames(t *testing.T) {
	packages, err := listPackages()
	require.NoError(t, err)
	for path, pkg := range packages {
		name, ok := strings.CutPrefix(path, module+"/")
		if !pkg.isOurs() || !ok || strings.Contains(path, "/internal/") {
			continue
		}
		names, err := exportedNames(name)
		require.NoError(t, err)
		n := 0
		for exported := range names {
			if ast.IsExported(exported) {
				n++
			}
		}
		assert.LessOrEqual(t, n, budget(ownExported, name, maxExported), "%s exports too many names", name)
	}
}
