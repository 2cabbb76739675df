package redistest

import "testing"

// HasCommand reports whether the server knows a command, such as "waitaof" of Redis 7.2.
func (s *Server) HasCommand(t testing.TB, name string) bool {
	t.Helper()
	info, err := s.process.admin.Do(t.Context(), "command", "info", name).Slice()
	if err != nil {
		t.Fatalf("redistest: ask %s for its commands: %v; it must be running", s.Addr, err)
	}
	return len(info) == 1 && info[0] != nil
}
