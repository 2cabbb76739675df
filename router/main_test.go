package router_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails if a goroutine of this module outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if stacks := leaked(); code == 0 && stacks != "" {
		fmt.Fprintf(os.Stderr, "goroutines are still running:\n%s\n", stacks)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of the goroutines that run code of this module and do not end within
// thirty seconds, which a busy machine may need.
func leaked() string {
	var ours []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		ours = nil
		for i, stack := range strings.Split(string(buf), "\n\n") {
			if i > 0 && strings.Contains(stack, "penstock-go/penstock") {
				ours = append(ours, stack)
			}
		}
		if len(ours) == 0 {
			return ""
		}
	}
	return strings.Join(ours, "\n\n")
}
