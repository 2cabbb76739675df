package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPublished(t *testing.T) {
	const path = "module github.com/penstock-go/penstock"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   string
	}{
		"modules follow what they require": {map[string]string{
			"go.mod":              path,
			"a/go.mod":            path + "/a\nrequire github.com/penstock-go/penstock/b v0.0.0\n",
			"b/go.mod":            path + "/b\nrequire github.com/penstock-go/penstock v0.0.0\n",
			"internal/x/go.mod":   path + "/internal/x",
			"b/testdata/c/go.mod": path + "/c",
		}, []string{".", "b", "a"}, ""},
		"a module requires what is not published": {map[string]string{
			"go.mod":            path,
			"a/go.mod":          path + "/a\nrequire github.com/penstock-go/penstock/internal/x v0.0.0\n",
			"internal/x/go.mod": path + "/internal/x",
		}, nil, "not published"},
		"modules require each other": {map[string]string{
			"go.mod":   path,
			"a/go.mod": path + "/a\nrequire github.com/penstock-go/penstock/b v0.0.0\n",
			"b/go.mod": path + "/b\nrequire github.com/penstock-go/penstock/a v0.0.0\n",
		}, nil, "require each other"},
		"a module has errors": {map[string]string{"go.mod": "modul"}, nil, "go.mod:1"},
	} {
		t.Run(name, func(t *testing.T) {
			dirs, err := published(write(t, c.files))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, dirs)
		})
	}
}

// TestMakefile_NamesPublishedModules reads the Makefile, whose list is that of .ci/run, too.
func TestMakefile_NamesPublishedModules(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^PUBLISHED := (.+)$`).FindSubmatch(text)
	require.NotNil(t, line)
	dirs, err := published("../..")
	require.NoError(t, err)
	assert.ElementsMatch(t, dirs, strings.Fields(string(line[1])))
}
