package main

import (
	_ "embed" // clients.py
	"fmt"
	"os/exec"
	"runtime"
	"slices"
)

const inPython = "Python"

// clientBurst is the number of messages after which the clients suite waits for the client.
const clientBurst = clusterPublications

// clientLoads are how the messages follow each other, and how often. In bursts, a client compiles
// more in the first ones.
var clientLoads = []struct {
	name, command string
	rounds        int
}{
	{clusterLoads[0].name, clusterLoads[0].command, 2},
	{clusterLoads[1].name, clusterLoads[1].command, 16},
}

// A clientPeer is a client library, which receives messages of 200 bytes and decodes their payload.
type clientPeer struct {
	name     string
	language string
	server   func() contender
	start    func(addr string) receiver
}

// A receiver is a client that is connected.
type receiver interface {
	expect(n int) // begins to count messages
	await()       // until as many have arrived
	usage() Stats // CPU and allocations: their number in Go, and their bytes in JavaScript
	close()
}

var clientPeers = slices.Concat(goClients, javaScriptClients, []clientPeer{
	{"penstock", inPython, func() contender { return variant("client penstock") }, startPython("penstock")},
	{"websockets alone", inPython, func() contender { return variant("client penstock") }, startPython("websockets")},
	{"centrifuge-python", inPython, func() contender { return variant("client centrifuge") }, startPython("centrifuge")},
})

//go:embed clients.py
var pythonScript string

func startPython(library string) func(addr string) receiver {
	return func(addr string) receiver { return newReceiver([]string{"python3", "-c", pythonScript, library, addr}) }
}

// receivers measures what client libraries need to receive a message.
func receivers(cfg config) {
	var columns []string
	for _, load := range clientLoads {
		columns = append(columns, load.name)
	}
	for _, language := range []string{inGo, inJavaScript, inPython} {
		allocated := "allocations"
		if language == inJavaScript {
			allocated = "bytes allocated"
			if _, err := installClients(); err != nil {
				fmt.Printf("\nclients in JavaScript: skipped, %v\n", err)
				continue
			}
		}
		if language == inPython && exec.Command("python3", "-c", "import pip").Run() != nil {
			fmt.Println("\nclients in Python: skipped, python3 with pip is not installed")
			continue
		}
		cpu := newTable(fmt.Sprintf("clients in %s: CPU per received message of 200 bytes, µs", language), "%.2f", columns...).named("clients, " + language)
		allocs := newTable(allocated+" per message", "%.1f", columns...).named("clients, " + language + ", " + allocated)
		for range cfg.passes {
			for _, peer := range clientPeers {
				if peer.language == language {
					measureReceiver(peer, cpu, allocs)
				}
			}
		}
		cpu.print()
		cpu.printRatios()
		if language != inPython { // which does not count them
			allocs.print()
			allocs.printRatios()
		}
	}
}

func measureReceiver(peer clientPeer, cpu, allocs *table) {
	p := start(peer.server(), setup{})
	defer p.stop()
	r := peer.start(p.addr)
	defer r.close()
	for _, load := range clientLoads {
		receive := func() {
			r.expect(clientBurst)
			p.command(load.command)
			r.await()
		}
		receive() // so that the client has compiled and allocated what it keeps
		before := r.usage()
		for range load.rounds {
			receive()
		}
		after := r.usage()
		n := float64(load.rounds * clientBurst)
		cpu.add(peer.name, load.name, cpuMicros(before, after)/n)
		allocs.add(peer.name, load.name, float64(after.Allocs-before.Allocs)/n)
	}
}

// ownStats returns the usage of this process, in which the clients in Go run.
func ownStats() Stats {
	runtime.GC() // so that each measurement begins with the same heap
	return stats()
}
