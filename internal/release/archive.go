package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// A file is in an archive.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// writeTarGz writes an archive whose bytes depend on the files and the time only.
func writeTarGz(path string, files []file, at time.Time) error {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// writeZip is like [writeTarGz].
func writeZip(path string, files []file, at time.Time) error {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range files {
		header := zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		w, err := archive.CreateHeader(&header)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// licenseFile matches the names of files that must accompany a binary.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying|notice|patents)`)

// licenses returns the licenses of all modules in a binary, and of Go, because they require that
// copies of the binary have them.
func (b *builder) licenses(ctx context.Context, binary string) ([]byte, error) {
	out, err := output(exec.CommandContext(ctx, "go", "version", "-m", "-json", binary))
	if err != nil {
		return nil, err
	}
	var info struct{ Main, Deps json.RawMessage }
	if err := json.Unmarshal(out, &info); err != nil {
		return nil, err
	}
	var main module.Version
	var modules []module.Version
	if err := json.Unmarshal(info.Main, &main); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(info.Deps, &modules); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, m := range append([]module.Version{main}, modules...) {
		escaped, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		if err := appendLicenses(&text, m.String(), filepath.Join(b.cache, filepath.FromSlash(escaped)+"@"+m.Version)); err != nil {
			return nil, err
		}
	}
	root, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	err = appendLicenses(&text, "Go", strings.TrimSpace(string(root)))
	return text.Bytes(), err
}

// appendLicenses appends the files with licenses in a folder, below the name of what they are of.
func appendLicenses(text *bytes.Buffer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, entry := range entries {
		if entry.IsDir() || !licenseFile.MatchString(entry.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		found = true
		_, _ = fmt.Fprintf(text, "== %s: %s\n\n%s\n\n", name, entry.Name(), bytes.TrimSpace(data))
	}
	if !found {
		return fmt.Errorf("%s has no file with a license", dir)
	}
	return nil
}
