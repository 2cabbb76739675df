package main

import (
	"os"
	"runtime/pprof"
)

// startProfile profiles the server's CPU into a file until the server stops.
func startProfile(path string) {
	f, err := os.Create(path)
	check(err)
	check(pprof.StartCPUProfile(f))
}

func stopProfile() { pprof.StopCPUProfile() }

func writeHeap(path string) {
	f, err := os.Create(path)
	check(err)
	check(pprof.Lookup("heap").WriteTo(f, 0))
	check(f.Close())
}
