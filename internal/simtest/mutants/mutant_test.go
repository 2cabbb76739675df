package main

import (
	"go/format"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const block = "about the file\n\n== room-a\nwhat is wrong\na.go\n-----\n\tx = 1\n-----\n\tx = 2\n-----\n"

func TestParse(t *testing.T) {
	mutants, err := parse(block + "\n== room-b\nit is left out\nb.go\n-----\ny()\nz()\n-----\n\n-----\n")
	require.NoError(t, err)
	assert.Equal(t, []mutant{
		{name: "room-a", about: "what is wrong", file: "a.go", from: "\tx = 1", to: "\tx = 2"},
		{name: "room-b", about: "it is left out", file: "b.go", from: "y()\nz()", to: ""},
	}, mutants)

	_, err = parse(block + block[16:])
	require.ErrorContains(t, err, `two mutants "room-a"`)
	_, err = parse("== room-c\nwithout a file\n-----\nold\n-----\nnew\n-----\n")
	require.ErrorContains(t, err, `"room-c" is not a mutant`)
	_, err = parse("== room-d\nwithout an end\nd.go\n-----\nold\n-----\nnew\n")
	require.ErrorContains(t, err, `"room-d" is not a mutant`)
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("a b b"), 0o600))
	changed, err := mutant{file: "a.go", from: "a", to: "c"}.apply(root)
	require.NoError(t, err)
	assert.Equal(t, "c b b", changed)
	_, err = mutant{file: "a.go", from: "b"}.apply(root)
	require.ErrorContains(t, err, "occurs 2 times")
	_, err = mutant{file: "a.go", from: "d"}.apply(root)
	require.ErrorContains(t, err, "occurs 0 times")
	_, err = mutant{file: "b.go", from: "a"}.apply(root)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestMutants_Apply keeps the mutants applicable while the product changes.
func TestMutants_Apply(t *testing.T) {
	const root = "../../.."
	mutants, err := read(root)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(mutants), 40)
	for _, m := range mutants {
		source, err := m.apply(root)
		if !assert.NoError(t, err) {
			continue
		}
		_, err = format.Source([]byte(source))
		assert.NoError(t, err, m.name)
		assert.NotEqual(t, m.from, m.to, m.name)
	}
}

func TestVerdictOf(t *testing.T) {
	for out, want := range map[string]string{
		"seed 6 begins\nseed 7 begins\n x_test.go:1: seed 7 (calm):\n x_test.go:2: lost\n--- FAIL: TestSeeds": "seed 7",
		"rare: seed 3 (hot): lost\n 5 of 200 seeds have failed in one run\n--- FAIL: TestSeeds":               "5 of 200 seeds have failed",
		"seed 8 begins\npanic: nil map\n": "seed 8 (panics)",
		"seed 8 begins\nFAIL: the simulation of seed 8 (hot) has not ended after 1m0s of real time:": "seed 8 (hangs)",
		"seed 8 begins\npanic: test timed out after 20m0s\n":                                         "seed 8 (hangs)",
		"seed 9 begins\nfatal error: all goroutines asleep\n":                                        "seed 9 (panics)",
		"--- FAIL: TestScenario_Two (0.1s)":                                                          "TestScenario_Two",
		"":                                                                                           "the tests end early",
	} {
		assert.Equal(t, want, verdictOf(out), out)
	}
}
