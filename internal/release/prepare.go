package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// prepare edits the work tree. Checksums in go.sum are those of committed files: what is not
// committed is not in the release.
func prepare(ctx context.Context, root, version string) error {
	proxy, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(proxy) }()
	return withCommitted(ctx, root, func(c commit) error {
		if err := checkChangelog(filepath.Join(c.dir, "CHANGELOG.md"), version); err != nil {
			return err
		}
		edited := []string{"clients/ts/package.json", "clients/ts/package-lock.json"}
		for _, name := range edited {
			if err := setPackageVersion(filepath.Join(c.dir, filepath.FromSlash(name)), version); err != nil {
				return err
			}
		}
		nested, err := release(c, version, proxy) // last, because its checksums include the edited files
		if err != nil {
			return err
		}
		for _, dir := range nested {
			edited = append(edited, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
		}
		for _, name := range edited {
			data, err := os.ReadFile(filepath.Join(c.dir, name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(root, name), data, 0o600); err != nil { // keeps the mode of the file
				return err
			}
		}
		return nil
	})
}

// checkChangelog checks that the newest release in the changelog is this version.
func checkChangelog(path, version string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	heading := "\n## " + strings.TrimPrefix(version, "v") + " - "
	_, rest, found := strings.Cut(string(text), heading)
	if !found || !regexp.MustCompile(`^\d{4}-\d{2}-\d{2}\n`).MatchString(rest) {
		return fmt.Errorf("CHANGELOG.md, as committed, must have the heading %q with the date, such as %s2026-12-01",
			strings.TrimSpace(heading), heading[1:])
	}
	return nil
}

// packageVersion matches the version in package.json, and the two of the package itself in
// package-lock.json: those after the name of the package.
var packageVersion = regexp.MustCompile(`("name": "penstock-client",\s+"version": ")[^"]*(")`)

// setPackageVersion sets the version of the npm package in package.json or package-lock.json.
func setPackageVersion(path, version string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !packageVersion.Match(text) {
		return fmt.Errorf(`%s must have "version" after the name penstock-client`, path)
	}
	text = packageVersion.ReplaceAll(text, []byte("${1}"+strings.TrimPrefix(version, "v")+"${2}"))
	return os.WriteFile(path, text, 0o600)
}
