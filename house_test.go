package penstock_test

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readTable returns the fields of the lines of a file in testdata, without comments.
func readTable(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if fields := strings.Fields(text); len(fields) > 0 {
			rows = append(rows, fields)
		}
	}
	require.NoError(t, lines.Err())
	return rows
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// floors returns the floor of each package.
func floors(t *testing.T) map[string]int {
	floors := map[string]int{}
	for _, row := range readTable(t, "floors.txt") {
		if len(row) == 2 {
			assert.NotContains(t, floors, row[1], "testdata/floors.txt has a package twice")
			floors[row[1]] = number(t, row[0])
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
		if assert.Contains(t, floors, name, "testdata/floors.txt must have a line for the package") {
			for _, imported := range pkg.imports {
				if other, ok := strings.CutPrefix(imported, module+"/"); ok {
					assert.Less(t, floors[other], floors[name], "%s imports %s, which is not on a lower floor", name, other)
				}
			}
		}
	}
	for name := range floors {
		assert.Contains(t, packages, module+"/"+name, "testdata/floors.txt has a line for a package that does not exist")
	}
}
