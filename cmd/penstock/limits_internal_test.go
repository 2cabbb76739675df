package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func limitsFile(t *testing.T, name, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestLimits_UsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"limits is followed by check or diff": {"limits"},
		"check needs a file":                  {"limits", "check"},
		"diff needs two files, as in penstock limits diff old.txt new.txt; it has 1": {"limits", "diff", "a"},
		"flag provided but not defined: -x":                                          {"limits", "-x"},
		"it has 3":                                                                   {"limits", "diff", "a", "b", "c"},
	} {
		status, stdout, stderr := command("", args...)
		assert.Equal(t, exitUsage, status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	status, stdout, _ := command("", "limits", "-h")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, limitsUsage, stdout)
}

func TestLimitsCheck_PrintsMistakesWithTheirLine(t *testing.T) {
	t.Chdir(t.TempDir())
	good := limitsFile(t, "good.txt", "# both\nchat: 10/s burst 20\nsearch: sliding-log 30/m\n")
	status, stdout, stderr := command("", "limits", "check", good)
	assert.Equal(t, exitOK, status)
	assert.Equal(t, "good.txt: 2 limits\n", stdout)
	assert.Empty(t, stderr)

	bad := limitsFile(t, "bad.txt", "chat: ten/s\n\nchat 10/s\nlast: 1/s")
	empty := limitsFile(t, "empty.txt", "")
	status, stdout, stderr = command("", "limits", "check", bad, good, empty, "missing.txt")
	assert.Equal(t, exitFailed, status)
	assert.Equal(t, "good.txt: 2 limits\n", stdout)
	assert.Equal(t, `bad.txt:1: "ten" is not a number of tokens; write digits, such as 10
bad.txt:3: "chat 10/s" has no name; write the name of the limiter's policy before it, as in chat: 10/s
bad.txt:4: the last line must end with a line break; without one, the file may be incomplete
empty.txt: the file has no limit; write one per line, such as chat: 10/s burst 20
missing.txt: open missing.txt: no such file or directory
penstock: 3 of 4 files not valid
`, stderr)
}

func TestLimitsDiff_SaysWhatBecomesSmallerOrLarger(t *testing.T) {
	t.Chdir(t.TempDir())
	before := limitsFile(t, "old.txt", "chat: 10/s burst 20\nsearch: sliding-log 30/m\nexport: quota 100/day\nsame: 1/s\ngone: 1/s\n")
	later := limitsFile(t, "new.txt", "same: 1/1s\nchat: 5/s burst 40\nsearch: sliding-log 9/m\nexport: quota 90/day\nnew: 1/m\n")
	status, stdout, stderr := command("", "limits", "diff", before, later)
	assert.Equal(t, exitOK, status)
	assert.Empty(t, stderr)
	assert.Equal(t, `limit   old               new              rate            capacity
chat    10/s burst 20     5/s burst 40     smaller, -50 %  larger, +100 %
search  sliding-log 30/m  sliding-log 9/m  smaller, -70 %  smaller, -70 %
export  quota 100/day     quota 90/day     smaller, -10 %  smaller, -10 %
new     -                 1/m              added
gone    1/s               -                removed
`, stdout)

	status, stdout, _ = command("", "limits", "diff", before, before)
	assert.Equal(t, exitOK, status)
	assert.Equal(t, "no limit differs\n", stdout)

	for _, args := range [][]string{{"nowhere.txt", later}, {later, "nowhere.txt"}} {
		status, stdout, stderr = command("", "limits", "diff", args[0], args[1])
		assert.Equal(t, exitFailed, status)
		assert.Empty(t, stdout)
		assert.Equal(t, "nowhere.txt: open nowhere.txt: no such file or directory\npenstock: no comparison: a file is not valid\n", stderr)
	}
}

// The policies of a file of limits can be simulated as they are.
func TestLimits_FileIsOneOfPolicies(t *testing.T) {
	path := limitsFile(t, filepath.Join(t.TempDir(), "limits.txt"), "# c\nchat: 1/s burst 2\n\"two words\": sliding-log 1/m\nx: quota 1/day Europe/Berlin\n")
	status, stdout, _ := command("time,key\n1,ann\n1,ann\n", "simulate", "-policies", path)
	assert.Equal(t, exitOK, status)
	assert.Contains(t, stdout, "\"two words\": sliding-log 1/m")
}
