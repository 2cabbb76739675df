package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ownUsage returns what this process has used.
func ownUsage() (usage syscall.Rusage) {
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage
}

// ownCPU returns the CPU seconds that this process has used.
func ownCPU() float64 {
	usage := ownUsage()
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// slabBytes returns the memory of the kernel's objects, to which sockets belong, or 0 on other systems
// than Linux.
func slabBytes() int64 {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "Slab: %d kB", &kilobytes); err == nil {
			return kilobytes * 1024
		}
	}
	return 0
}
