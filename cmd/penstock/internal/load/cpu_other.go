//go:build !unix

package load

import "time"

// cpuTime returns -1: this system does not report it here.
func cpuTime() time.Duration { return -1 }
