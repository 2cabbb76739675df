package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck_FindsWhatAPlatformDoesNotCompile(t *testing.T) {
	for name, tt := range map[string]struct {
		files    map[string]string
		platform string
		want     string // a part of the error; none if it is empty
	}{
		"compiles":                    {map[string]string{"a.go": "package a\n\nimport _ \"net/http\"\n"}, "js/wasm", ""},
		"a name of another system":    {map[string]string{"a.go": "package a\n\nvar B = b\n", "b_linux.go": "package a\n\nvar b int\n"}, "darwin/arm64", "undefined: b"},
		"a name of its own":           {map[string]string{"a.go": "package a\n\nvar B = b\n", "b_linux.go": "package a\n\nvar b int\n"}, "linux/arm64", ""},
		"a function of a system":      {map[string]string{"a.go": "package a\n\nimport \"syscall\"\n\nvar A = syscall.EpollWait\n"}, "windows/amd64", "undefined: syscall.EpollWait"},
		"no file":                     {map[string]string{"a_linux.go": "package a\n", "b/b.go": "package b\n\nimport _ \"faulty\"\n"}, "freebsd/amd64", "exit status 1"},
		"a large number":              {map[string]string{"a.go": "package a\n\nfunc A() int { return 1 << 40 }\n"}, "linux/386", "overflows"},
		"a large number, 64 bits":     {map[string]string{"a.go": "package a\n\nfunc A() int { return 1 << 40 }\n"}, "linux/arm64", ""},
		"a large number in a test":    {map[string]string{"a.go": "package a\n", "a_test.go": "package a_test\n\nimport \"testing\"\n\nfunc TestA(*testing.T) { _ = int(1 << 40) }\n"}, "linux/386/tests", "overflows"},
		"a test that is not compiled": {map[string]string{"a.go": "package a\n", "a_test.go": "package a\n\nvar b = c\n"}, "linux/386", ""},
		"a test of internals":         {map[string]string{"a.go": "package a\n\nvar a int\n", "a_test.go": "package a\n\nvar B = a\n", "b_test.go": "package a_test\n\nimport \"faulty\"\n\nvar _ = a.B\n"}, "linux/386/tests", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tt.files["go.mod"] = "module faulty\n\ngo 1.26\n"
			for name, text := range tt.files {
				file := filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			err := check(dir, tt.platform)
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}
