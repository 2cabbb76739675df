package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A target is a system on which the command runs.
type target struct{ os, arch string }

func targets() []target {
	return []target{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}
}

// describer lists the modules in a binary as CycloneDX.
const describer = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// buildRelease writes the files of a release into the folder dir, which must be empty or absent:
// for each target an archive with the command and a list of its modules, the provenance, and the
// checksums of all of them. The binaries are those that `CGO_ENABLED=0 go install -trimpath` builds
// from the published modules. The files depend on the commit and on the release of Go; the lists
// also name the program that writes them, with a checksum that depends on the present system.
func buildRelease(ctx context.Context, root, version, dir string, systems []target) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("the folder %s has files; the one of a release must be empty", dir)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	return withCommitted(ctx, root, func(c commit) error {
		proxy, cache := filepath.Join(temp, "proxy"), filepath.Join(temp, "cache")
		if _, err := release(c, version, proxy); err != nil {
			return err
		}
		env, err := environment(ctx, proxy, cache)
		if err != nil {
			return err
		}
		b := builder{version, dir, temp, cache, env, c}
		if err := b.installDescriber(ctx); err != nil {
			return err
		}
		for _, system := range systems {
			if err := b.build(ctx, system); err != nil {
				return fmt.Errorf("%s/%s: %w", system.os, system.arch, err)
			}
		}
		if err := b.describeBuild(ctx); err != nil {
			return err
		}
		return writeChecksums(dir)
	})
}

// A builder builds the command from the modules that the proxy in its environment provides.
type builder struct {
	version string
	dir     string // of the files of the release
	temp    string
	cache   string // of modules
	env     []string
	commit  commit
}

const command = "cmd/penstock"

func (b *builder) build(ctx context.Context, system target) error {
	// GOBIN is not allowed for other systems than the present one.
	gopath := filepath.Join(b.temp, system.os+"_"+system.arch)
	env := append(slices.Clip(b.env), "GOPATH="+gopath, "GOBIN=", "GOOS="+system.os, "GOARCH="+system.arch,
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if err := b.run(ctx, env, "go", "install", modulePath(command)+"@"+b.version); err != nil {
		return err
	}
	binary := filepath.Join(gopath, "bin", "penstock")
	if system != (target{runtime.GOOS, runtime.GOARCH}) {
		binary = filepath.Join(gopath, "bin", system.os+"_"+system.arch, "penstock")
	}
	if system.os == "windows" {
		binary += ".exe"
	}
	licenses, err := b.licenses(ctx, binary)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	name := filepath.Join(b.dir, fmt.Sprintf("penstock_%s_%s_%s", strings.TrimPrefix(b.version, "v"), system.os, system.arch))
	if err := b.listModules(ctx, binary, name+".cdx.json"); err != nil {
		return err
	}
	files := []file{{filepath.Base(binary), 0o755, program}, {"LICENSES", 0o644, licenses}}
	if system.os == "windows" {
		return writeZip(name+".zip", files, b.commit.time)
	}
	return writeTarGz(name+".tar.gz", files, b.commit.time)
}

func (b *builder) run(ctx context.Context, env []string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = b.temp, env
	_, err := output(c)
	return err
}

// installDescriber installs the program with the modules that the machine has.
func (b *builder) installDescriber(ctx context.Context) error {
	return b.run(ctx, append(os.Environ(), "GOBIN="+b.temp, "GOFLAGS=-trimpath", "GOWORK=off", "CGO_ENABLED=0"), "go", "install", describer)
}

// timestamp is the only part of a list of modules that differs from run to run.
var timestamp = regexp.MustCompile(`("timestamp": ")[^"]*(")`)

// listModules writes the modules in a binary, with their licenses, as CycloneDX.
func (b *builder) listModules(ctx context.Context, binary, path string) error {
	err := b.run(ctx, b.env, filepath.Join(b.temp, "cyclonedx-gomod"), "bin", "-json", "-std", "-licenses", "-noserial", "-version", b.version, "-output", path, binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !timestamp.Match(text) {
		return fmt.Errorf("%s has no timestamp", path)
	}
	text = timestamp.ReplaceAll(text, []byte("${1}"+b.commit.time.Format("2006-01-02T15:04:05Z")+"${2}"))
	return os.WriteFile(path, text, 0o600)
}

// A statement is an in-toto statement with a SLSA provenance
// (https://slsa.dev/spec/v1.0/provenance).
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// describeBuild writes provenance.json: from which commit and with which release of Go the files
// are.
func (b *builder) describeBuild(ctx context.Context) error {
	out, err := output(exec.CommandContext(ctx, "go", "env", "GOVERSION"))
	if err != nil {
		return err
	}
	sums, err := checksums(b.dir)
	if err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, sum := range sums {
		s.Subject = append(s.Subject, resource{Name: sum.name, Digest: map[string]string{"sha256": sum.hash}})
	}
	const steps = "https://" + rootPath + "/blob/main/docs/releasing.md"
	s.Predicate.BuildDefinition.BuildType = steps
	s.Predicate.BuildDefinition.ExternalParameters = map[string]string{"version": b.version}
	s.Predicate.BuildDefinition.ResolvedDependencies = []resource{
		{URI: "git+https://" + rootPath + "@refs/tags/" + b.version, Digest: map[string]string{"gitCommit": b.commit.hash}},
		{Name: strings.TrimSpace(string(out)), URI: "https://go.dev/dl/"},
	}
	s.Predicate.RunDetails.Builder.ID = steps + "#who-builds"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "provenance.json"), append(text, '\n'), 0o600)
}

// A checksum is the SHA-256 of a file, in hexadecimal digits.
type checksum struct{ hash, name string }

// checksums returns those of the files in a folder, in the order of their names.
func checksums(dir string) (sums []checksum, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		sums = append(sums, checksum{fmt.Sprintf("%x", sha256.Sum256(data)), entry.Name()})
	}
	return sums, nil
}

// writeChecksums writes checksums.txt in the format of sha256sum.
func writeChecksums(dir string) error {
	sums, err := checksums(dir)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, sum := range sums {
		_, _ = fmt.Fprintf(&text, "%s  %s\n", sum.hash, sum.name)
	}
	return os.WriteFile(filepath.Join(dir, "checksums.txt"), text.Bytes(), 0o600)
}
