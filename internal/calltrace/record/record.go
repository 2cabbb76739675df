// Package record lists the files whose functions are called while a test of package calltrace asks for it.
// Only the copy that package calltrace makes calls Enter.
package record

import (
	"slices"
	"sync"
)

//nolint:gochecknoglobals // functions of all packages call Enter
var (
	mu      sync.Mutex
	running bool
	entered []string
)

// Enter is called at the start of each function of file, which is a path in this module.
func Enter(file string) {
	mu.Lock()
	defer mu.Unlock()
	if running {
		entered = append(entered, file)
	}
}

// During returns the files of the functions that all goroutines enter while run runs, in their order.
func During(run func()) []string {
	mu.Lock()
	running, entered = true, nil
	mu.Unlock()
	run()
	mu.Lock()
	defer mu.Unlock()
	running = false
	return slices.Clone(entered)
}
