//go:build (!linux || 386 || s390x) && !simulatedpoll

package netpoll

// A Socket does not exist on this system: Attach fails, and no other method is called.
type Socket struct{}

// Loop is never called.
func (*Socket) Loop() int { panic("unreachable") }

// Order is never called.
func (*Socket) Order() int32 { panic("unreachable") }

// Close is never called.
func (*Socket) Close() { panic("unreachable") }

// Abort is never called.
func (*Socket) Abort() { panic("unreachable") }

// CloseWrite is never called.
func (*Socket) CloseWrite() { panic("unreachable") }

// ReportAgain is never called.
func (*Socket) ReportAgain() bool { panic("unreachable") }

// Read is never called.
func (*Socket) Read([]byte) (int, error) { panic("unreachable") }

// Emptied is never called.
func (*Socket) Emptied(int, int) bool { panic("unreachable") }

// Write is never called.
func (*Socket) Write([]byte) (int, error) { panic("unreachable") }
