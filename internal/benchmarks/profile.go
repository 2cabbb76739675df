package main

import (
	"os"
	"runtime/pprof"
)

// profileTo is an environment variable: the file to which a server writes its profile.
const profileTo = "PROFILE"

// startProfile writes a CPU profile of the server to a file until the server stops.
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
