package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// CommandStats returns the number of calls of each command since the start or the last ResetStats,
// including calls by scripts. The keys are the names in INFO commandstats, such as "get",
// "evalsha" or "client|setinfo"; commands without calls are absent. Connecting clients also call
// "hello" and "client|…", and this package calls "info" and "config|resetstat".
func (s *Server) CommandStats(t testing.TB) map[string]int64 {
	t.Helper()
	info, err := s.process.admin.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("redistest: read the command statistics of %s: %v; it must be running", s.Addr, err)
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

// ResetStats resets the counts of CommandStats to zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	if err := s.process.admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatalf("redistest: reset the statistics of %s: %v; it must be running", s.Addr, err)
	}
}
