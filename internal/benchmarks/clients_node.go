package main

import (
	_ "embed" // clients.mjs
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
)

const inJavaScript = "JavaScript"

// nodePackages are the npm packages of the clients in JavaScript. All use the WebSockets of ws.
var nodePackages = []string{"socket.io@4.8.4", "socket.io-client@4.8.4", "centrifuge@5.8.0", "ws@8.23.0", "esbuild@0.28.2"}

// typeScriptClient is the source of Penstock's client.
const typeScriptClient = "../../clients/ts/src/index.ts"

//go:embed clients.mjs
var clientsScript []byte

var javaScriptClients = []clientPeer{
	{"penstock", inJavaScript, func() contender { return variant("client penstock") }, nodeClient("penstock")},
	{"socket.io-client", inJavaScript, serveSocketIO, nodeClient("socket.io")},
	{"centrifuge-js", inJavaScript, func() contender { return variant("client centrifuge") }, nodeClient("centrifuge")},
}

func serveSocketIO() contender { return contender{name: "socket.io", command: nodeCommand("serve")} }

// nodeCommand returns the command of clients.mjs. Its new space is so large that nothing is collected
// during a measurement: what the heap grows by is what has been allocated.
func nodeCommand(role ...string) func() ([]string, error) {
	return func() ([]string, error) {
		dir, err := installClients()
		command := []string{"node", "--expose-gc", "--min-semi-space-size=256", "--max-semi-space-size=256", filepath.Join(dir, "clients.mjs")}
		return slices.Concat(command, role), err
	}
}

// installClients installs the packages in the user's cache directory, unless they are there already,
// and builds Penstock's client.
var installClients = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", errors.New("node is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "penstock-benchmarks", "clients-1") // another number for other packages
	esbuild := filepath.Join(dir, "node_modules", "esbuild", "bin", "esbuild")
	if _, err := os.Stat(esbuild); err != nil {
		if err := installPackages(dir, nodePackages...); err != nil {
			return "", err
		}
	}
	build := exec.Command("node", esbuild, typeScriptClient, "--bundle", "--format=esm", "--log-level=warning", "--outfile="+filepath.Join(dir, "penstock.mjs"))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("esbuild: %w: %s", err, out)
	}
	return dir, os.WriteFile(filepath.Join(dir, "clients.mjs"), clientsScript, 0o600)
})

// A commandReceiver is a process of Node.js or Python.
type commandReceiver struct{ p *process }

// nodeClient returns a function that starts a process with a client.
func nodeClient(library string) func(addr string) receiver {
	return func(addr string) receiver {
		args, err := nodeCommand(library, addr)()
		check(err)
		return newReceiver(args)
	}
}

func newReceiver(command []string) receiver {
	r := commandReceiver{spawn(command, os.Environ())}
	r.p.line() // connected
	return r
}

func (r commandReceiver) expect(n int) { r.p.command(fmt.Sprint("expect ", n)) }
func (r commandReceiver) await()       { r.p.command("await") }
func (r commandReceiver) usage() Stats { return r.p.command("collect") }
func (r commandReceiver) close()       { r.p.stop() }
