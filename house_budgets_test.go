package penstock_test

import (
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What every package and file may have. A file has one topic; a package that needs more should become two; one that is above it today has
// a line in testdata/budgets.txt, whose number only becomes smaller.
const (
	maxPackageLines = 4_000
	maxFileLines    = 400
	maxExported     = 60
)

// budgets returns the lines of testdata/budgets.txt that begin with a word.
func budgets(t *testing.T, kind string) map[string]int {
	t.Helper()
	budgets := map[string]int{}
	for _, row := range readTable(t, "budgets.txt") {
		if row[0] == kind {
			require.Len(t, row, 3)
			budgets[row[1]] = number(t, row[2])
		}
	}
	return budgets
}

func budget(own map[string]int, name string, usual int) int {
	if lines, ok := own[name]; ok {
		return lines
	}
	return usual
}

// libraryLines returns how many lines the files of each folder have, in all modules, without tests and
// what is generated.
func libraryLines(t *testing.T) (files, folders map[string]int) {
	files, folders = map[string]int{}, map[string]int{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && !bytes.HasPrefix(text, []byte("// Code generated ")) {
			files[name] = bytes.Count(text, []byte("\n"))
			folders[path.Dir(name)] += files[name]
		}
		return err
	})
	require.NoError(t, err)
	return files, folders
}

func TestHouse_SizesOfPackagesAndFiles(t *testing.T) {
	files, folders := libraryLines(t)
	own := budgets(t, "lines")
	for name, lines := range files {
		assert.LessOrEqual(t, lines, maxFileLines, "%s is too long: a file has one topic", name)
	}
	for name, lines := range folders {
		assert.LessOrEqual(t, lines, budget(own, name, maxPackageLines), "%s is too large: move a part of it to a package of its own", name)
	}
}

// TestHouse_ExportedNames counts what a reader of a package has to know, in all modules. Methods and fields do not count.
func TestHouse_ExportedNames(t *testing.T) {
	_, folders := libraryLines(t)
	own := budgets(t, "exported")
	for name := range folders {
		names, err := exportedNames(name)
		require.NoError(t, err)
		n := 0
		for exported := range names {
			if ast.IsExported(exported) {
				n++
			}
		}
		assert.LessOrEqual(t, n, budget(own, name, maxExported), "%s exports too many names", name)
	}
}

// TestHouse_BudgetsRiseAlone keeps a change from raising the budget that it exceeds: who raises one says why, in a
// commit of its own.
func TestHouse_BudgetsRiseAlone(t *testing.T) {
	const file = "testdata/budgets.txt"
	commits, err := exec.Command("git", "log", "-50", "--no-merges", "--format=%H", "--", file).Output()
	if err != nil {
		t.Skip("the history of the repository is not available: ", err)
	}
	for commit := range strings.FieldsSeq(string(commits)) {
		changed, err := exec.Command("git", "show", "--format=", "--name-only", commit).Output() //nolint:gosec // a hash
		require.NoError(t, err)
		patch, err := exec.Command("git", "show", "--format=", "-U0", commit, "--", file).Output() //nolint:gosec // a hash
		require.NoError(t, err)
		if len(strings.Fields(string(changed))) > 1 {
			assert.Empty(t, raised(t, string(patch)), "commit %s raises a budget and changes other files", commit)
		}
	}
}

// raised returns the budgets that a patch raises.
func raised(t *testing.T, patch string) (names []string) {
	before := map[string]int{}
	for line := range strings.Lines(patch) {
		if fields := strings.Fields(strings.TrimLeft(line, "+-")); len(fields) == 3 && !strings.Contains(line, "#") {
			name := fields[0] + " " + fields[1]
			switch {
			case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
			case line[0] == '-':
				before[name] = number(t, fields[2])
			case line[0] == '+':
				if was, ok := before[name]; ok && number(t, fields[2]) > was {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

func TestRaised_FindsHigherNumbers(t *testing.T) {
	assert.Equal(t, []string{"lines a"}, raised(t, "--- a/testdata/budgets.txt\n-lines a 10\n-lines b 10\n+lines a 11\n+lines b 9\n+lines new 5\n"))
	assert.Empty(t, raised(t, "+lines a 10\n"))
}
