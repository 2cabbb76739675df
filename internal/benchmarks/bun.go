package main

import (
	_ "embed" // bun.js
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// bunVersion is the version of the npm package bun.
const bunVersion = "1.4.5"

//go:embed bun.js
var bunScript []byte

// bunCommand returns the command of a server that Bun runs. The first call installs Bun in the user's
// cache directory, unless it is there already.
var bunCommand = sync.OnceValues(func() ([]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "penstock-benchmarks", "bun-"+bunVersion)
	program := findBun(dir)
	if program == "" {
		if err := installBun(dir); err != nil {
			return nil, err
		}
		if program = findBun(dir); program == "" {
			return nil, fmt.Errorf("the npm package bun %s has no program for this system", bunVersion)
		}
	}
	script := filepath.Join(dir, "server.js")
	return []string{program, script}, os.WriteFile(script, bunScript, 0o600)
})

// findBun returns the program in dir, or "".
func findBun(dir string) string {
	programs, _ := filepath.Glob(filepath.Join(dir, "node_modules", "@oven", "bun-*", "bin", "bun"))
	for _, program := range programs {
		version, err := exec.Command(program, "--version").Output()
		if err == nil && strings.TrimSpace(string(version)) == bunVersion {
			return program
		}
	}
	return ""
}

func installBun(dir string) error {
	// The package of the platform contains the program, so the scripts of the packages need not run.
	return installPackages(dir, "bun@"+bunVersion)
}

// installPackages installs npm packages in a directory, without their scripts.
func installPackages(dir string, packages ...string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not installed")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fmt.Printf("installing %s in %s\n", strings.Join(packages, ", "), dir)
	args := append([]string{"install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}, packages...)
	if out, err := exec.Command(npm, args...).CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("npm cannot install it: %w: %s", err, line)
	}
	return nil
}
