// Command containerlint checks files of Docker Compose, as "docker compose config" does, and Dockerfiles, as "docker
// build --check" does: those that a Compose file builds, and those in its arguments. It needs neither Docker nor a
// network: base images are not read.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	digest "github.com/opencontainers/go-digest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: containerlint FILE...\nwhere FILE is a Dockerfile, or a Compose file with the extension .yaml")
		os.Exit(2)
	}
	failed := false
	for _, path := range os.Args[1:] {
		lint := lintDockerfile
		if filepath.Ext(path) == ".yaml" {
			lint = lintCompose
		}
		problems, err := lint(context.Background(), path, nil)
		for _, problem := range problems {
			fmt.Fprintln(os.Stdout, problem)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "containerlint: %s: %v\n", path, err)
		}
		failed = failed || err != nil || len(problems) > 0
	}
	if failed {
		os.Exit(1)
	}
}

// lintCompose returns an error if the file is not valid: an unknown key or an undefined network, for example.
func lintCompose(ctx context.Context, path string, _ map[string]string) (problems []string, err error) {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("lint"))
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return nil, err
	}
	built := map[string]bool{} // a Dockerfile of several services is checked once
	for _, name := range project.ServiceNames() {
		service := project.Services[name]
		problems = append(problems, missingMounts(service)...)
		if service.Build == nil {
			continue
		}
		dockerfile := filepath.Join(service.Build.Context, service.Build.Dockerfile)
		if built[dockerfile] {
			continue
		}
		built[dockerfile] = true
		found, err := lintDockerfile(ctx, dockerfile, service.Build.Args.Resolve(os.LookupEnv).ToMapping())
		if err != nil {
			return problems, fmt.Errorf("%s: %w", dockerfile, err)
		}
		problems = append(problems, found...)
	}
	return problems, nil
}

// missingMounts returns the files that a service mounts and that do not exist: Docker would create folders in their place.
func missingMounts(service types.ServiceConfig) (problems []string) {
	for _, volume := range service.Volumes {
		if volume.Type != types.VolumeTypeBind {
			continue
		}
		if _, err := os.Stat(volume.Source); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", service.Name, err))
		}
	}
	return problems
}

func lintDockerfile(ctx context.Context, path string, args map[string]string) (problems []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	options := dockerfile2llb.ConvertOpt{
		MetaResolver: noImages{},
		SourceMap:    &llb.SourceMap{Filename: path, Data: text, Definition: &llb.Definition{}},
	}
	options.BuildArgs = args
	results, err := dockerfile2llb.DockerfileLint(ctx, text, options)
	if err != nil {
		return nil, err
	}
	if results.Error != nil {
		return nil, fmt.Errorf("%s", results.Error.Message)
	}
	for _, warning := range results.Warnings {
		problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", path, warning.Location.GetRanges()[0].GetStart().GetLine(), warning.RuleName, warning.Detail))
	}
	return problems, nil
}

// noImages stands for a registry: every image exists, and sets nothing.
type noImages struct{}

func (noImages) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, digest.FromString(ref), []byte("{}"), nil
}
