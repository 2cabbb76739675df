// Package soak runs the chat on several nodes under load and faults for a long time, and measures whether it grows:
//
//	PENSTOCK_TESTS=30m go test -C internal/interop -run TestSoak -timeout 0 -v -artifacts ./soak
//
// writes the samples and their plot to internal/interop/_artifacts/. 30 minutes is the shortest time: the first third is for
// what has to fill, such as keys that live for five minutes.
package soak
