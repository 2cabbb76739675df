package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// CommandStats returns how often each command was called since the start or the
// last ResetStats, by the name that Redis gives it, such as "get", "evalsha" or
// "client|setinfo". A command that was never called is absent. Commands that
// scripts call count too. Clients that connect add to "hello" and "client|…", and
// this package to "info" and "config|resetstat".
func (s *Server) CommandStats(t testing.TB) map[string]int64 {
	t.Helper()
	info, err := s.process.admin.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("redistest: command statistics of %s: %v; it must be running", s.Addr, err)
	}
	calls := map[string]int64{}
	for name, values := range info["Commandstats"] {
		var n int64
		if _, err := fmt.Sscanf(values, "calls=%d,", &n); err != nil {
			t.Fatalf("redistest: command statistics of %s: %s is %q; it must begin with calls=", s.Addr, name, values)
		}
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

// ResetStats makes CommandStats count from zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	if err := s.process.admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatalf("redistest: reset of the statistics of %s: %v; it must be running", s.Addr, err)
	}
}
