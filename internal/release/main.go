// Command release prepares a release of everything that is published, and checks it.
//
//	go run -C internal/release . api v0.1.0         # list the changes of the API since the last release
//	go run -C internal/release . prepare v0.1.0     # write the version into the files that have it
//	go run -C internal/release . proxy v0.1.0 DIR   # write a module proxy with the committed files
//	go run -C internal/release . build v0.1.0 DIR   # write the files of the release
//
// All modules have one version, and their tags are on one commit. In that commit, the nested
// modules require the others in this version and replace nothing, because `go install` rejects a
// module that replaces another one. docs/releasing.md has the steps.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/penstock-go/penstock/errors"
)

const usage = `usage: release api VERSION         list the changes of the API since the last release
       release prepare VERSION     write the version into the files that have it
       release proxy VERSION DIR   write a module proxy with the files of HEAD
       release build VERSION DIR   write the files of the release, built from HEAD`

func main() {
	root, err := gitOutput(context.Background(), ".", "rev-parse", "--show-toplevel")
	if err == nil {
		err = run(context.Background(), root, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run runs a command in the repository with the work tree root.
func run(ctx context.Context, root string, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New(usage)
	}
	version := args[1]
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("the version %q must have the form v0.1.0", version)
	}
	switch {
	case args[0] == "api" && len(args) == 2:
		return api(ctx, os.Stdout, root, version)
	case args[0] == "prepare" && len(args) == 2:
		return prepare(ctx, root, version)
	case args[0] == "build" && len(args) == 3:
		return buildRelease(ctx, root, version, args[2], targets())
	case args[0] == "proxy" && len(args) == 3:
		return writeProxy(ctx, root, version, args[2])
	}
	return errors.New(usage)
}

// gitOutput returns what a git command prints, without white space around it.
func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...))
	return strings.TrimSpace(string(out)), err
}

// output runs a command. An error has what the command has written about it.
func output(command *exec.Cmd) ([]byte, error) {
	out, err := command.Output()
	if err != nil {
		text := ""
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			text = string(exit.Stderr)
		}
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, text)
	}
	return out, nil
}

// A commit is the files of HEAD in a folder of their own.
type commit struct {
	dir  string
	hash string
	time time.Time
}

// withCommitted calls do with the files of HEAD, and removes them.
func withCommitted(ctx context.Context, root string, do func(commit) error) error {
	head, err := gitOutput(ctx, root, "log", "-1", "--format=%H %cI")
	if err != nil {
		return err
	}
	hash, date, _ := strings.Cut(head, " ")
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	files, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(files) }()
	if err := checkOut(ctx, root, "HEAD", files); err != nil {
		return err
	}
	return do(commit{files, hash, at.UTC()})
}

// checkOut writes the files of a revision into a folder.
func checkOut(ctx context.Context, root, revision, dir string) error {
	archive := filepath.Join(dir, "archive.tar")
	if _, err := gitOutput(ctx, root, "archive", "-o", archive, revision); err != nil {
		return err
	}
	if _, err := output(exec.CommandContext(ctx, "tar", "-C", dir, "-xf", archive)); err != nil {
		return err
	}
	return os.Remove(archive)
}
