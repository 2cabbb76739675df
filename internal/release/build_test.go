package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestBuildRelease_NeedsEmptyFolder(t *testing.T) {
	dir := write(t, map[string]string{"old.zip": ""})
	assert.ErrorContains(t, buildRelease(t.Context(), "../..", version, dir, nil), "must be empty")
}

func TestAppendLicenses_RequiresLicense(t *testing.T) {
	dir := write(t, map[string]string{"README": "", "license/text": ""})
	assert.ErrorContains(t, appendLicenses(nil, "m", dir), "no file with a license")
}

// TestArchives_HaveSameBytes writes archives twice, at different times of the clock.
func TestArchives_HaveSameBytes(t *testing.T) {
	files := []file{{"penstock", 0o755, []byte("program")}, {"LICENSES", 0o644, []byte("MIT")}}
	at := time.Date(2026, 12, 1, 10, 20, 30, 400, time.UTC)
	for name, archive := range map[string]func(string, []file, time.Time) error{"a.tar.gz": writeTarGz, "a.zip": writeZip} {
		var texts []string
		for range 2 {
			path := filepath.Join(t.TempDir(), name)
			require.NoError(t, archive(path, files, at))
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			texts = append(texts, string(text))
		}
		assert.Equal(t, texts[0], texts[1], name)
	}
}

// TestBuildRelease_IsReproducible builds a commit twice for the present system, from clones in
// different folders. If PENSTOCK_TESTS is a duration, the second build compiles everything again.
func TestBuildRelease_IsReproducible(t *testing.T) {
	testscale.FullOnly(t, "TestArchives_HaveSameBytes")
	systems := []target{{runtime.GOOS, runtime.GOARCH}}
	if runtime.GOOS == "windows" {
		t.Skip("reads an archive of another system")
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		if i > 0 && testscale.Soak() > 0 {
			t.Setenv("GOCACHE", t.TempDir())
		}
		require.NoError(t, buildRelease(t.Context(), clone(t), version, dir, systems))
	}
	var sums []string
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
		require.NoError(t, err)
		sums = append(sums, string(text))
	}
	require.Equal(t, sums[0], sums[1])

	base := "penstock_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH
	names := []string{base + ".cdx.json", base + ".tar.gz", "provenance.json"}
	require.Len(t, strings.Split(strings.TrimSpace(sums[0]), "\n"), len(names))
	for _, name := range names {
		assert.Contains(t, sums[0], "  "+name+"\n")
	}
	unpacked := t.TempDir()
	unpack(t, filepath.Join(dirs[0], base+".tar.gz"), unpacked)
	licenses, err := os.ReadFile(filepath.Join(unpacked, "LICENSES"))
	require.NoError(t, err)
	for _, of := range []string{"== github.com/penstock-go/penstock/cmd/penstock@v0.1.0: LICENSE", "== gonum.org/v1/plot@", "== Go: LICENSE"} {
		assert.Contains(t, string(licenses), of)
	}
	out, err := output(exec.CommandContext(t.Context(), filepath.Join(unpacked, "penstock"), "-h"))
	require.NoError(t, err)
	assert.Contains(t, string(out), "penstock")

	var list struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name string }
	}
	readJSON(t, filepath.Join(dirs[0], names[0]), &list)
	assert.Equal(t, version, list.Metadata.Component.Version)
	assert.Contains(t, list.Components, struct{ Name string }{rootPath})
	var described statement
	readJSON(t, filepath.Join(dirs[0], "provenance.json"), &described)
	require.Len(t, described.Subject, 2)
	for _, subject := range described.Subject {
		assert.Contains(t, sums[0], subject.Digest["sha256"]+"  "+subject.Name+"\n")
	}
	head, err := gitOutput(t.Context(), "../..", "rev-parse", "HEAD")
	require.NoError(t, err)
	assert.Equal(t, head, described.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"])
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, v))
}

// unpack writes the files of an archive into a folder.
func unpack(t *testing.T, path, dir string) {
	t.Helper()
	compressed, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = compressed.Close() }()
	text, err := gzip.NewReader(compressed)
	require.NoError(t, err)
	for archive := tar.NewReader(text); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), data, header.FileInfo().Mode()))
	}
}
