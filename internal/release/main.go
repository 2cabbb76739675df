// Command release prepares a release of all modules that are published.
//
//	go run -C internal/release . prepare v0.1.0     # edit go.mod and go.sum of the nested modules
//	go run -C internal/release . proxy v0.1.0 DIR   # write a module proxy with the committed files
//
// All modules have one version, and their tags are on one commit. In that commit, the nested modules
// require the others in this version and replace nothing, because `go install` rejects a module
// that replaces another one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/penstock-go/penstock/errors"
)

const usage = `usage: release prepare VERSION     edit go.mod and go.sum of the nested modules
       release proxy VERSION DIR   write a module proxy with the files of HEAD`

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New(usage)
	}
	version := args[1]
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("the version %q must have the form v0.1.0", version)
	}
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	root := strings.TrimSpace(string(out))
	switch {
	case args[0] == "prepare" && len(args) == 2:
		return prepare(ctx, root, version)
	case args[0] == "proxy" && len(args) == 3:
		return writeProxy(ctx, root, version, args[2])
	}
	return errors.New(usage)
}

// prepare edits the work tree. Checksums in go.sum are those of committed files: what is not committed
// is not in the release.
func prepare(ctx context.Context, root, version string) error {
	proxy, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(proxy) }()
	return withCommitted(ctx, root, func(files string) error {
		nested, err := release(ctx, files, version, proxy)
		if err != nil {
			return err
		}
		for _, dir := range nested {
			for _, name := range []string{"go.mod", "go.sum"} {
				data, err := os.ReadFile(filepath.Join(files, dir, name))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(root, dir, name), data, 0o600); err != nil { // keeps the mode of the file
					return err
				}
			}
		}
		return nil
	})
}

// writeProxy writes the modules as they are committed into the folder dir. GOPROXY=file://dir then
// provides them.
func writeProxy(ctx context.Context, root, version, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return withCommitted(ctx, root, func(files string) error {
		_, err := release(ctx, files, version, dir)
		return err
	})
}

// withCommitted calls do with a folder that has the files of HEAD, and removes it.
func withCommitted(ctx context.Context, root string, do func(files string) error) error {
	files, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(files) }()
	archive := filepath.Join(files, "archive.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "-o", archive, "HEAD"},
		{"tar", "-C", files, "-xf", archive},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, out)
		}
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	return do(files)
}
