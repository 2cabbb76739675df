package netpoll

// Events say what the kernel has reported about a socket.
type Events uint8

// The events. Each may also be reported when there is nothing to do.
const (
	Readable       Events = 1 << iota // there may be something to read, or an error
	Writable                          // there may be room to write
	HangupOrUrgent                    // a hangup, an error or urgent data, each of which is reported only once: from then on, a short read does not prove that the socket is empty
)

// A Waiter is notified about a socket by the event loop. Its methods run on the loop's
// goroutine. They may block: another goroutine then takes the loop over and calls TakenOver.
type Waiter interface {
	// Ready handles events. If it returns true, Continue is called after other sockets have had
	// their turn.
	Ready(Events, Turn) (again bool)

	// Continue follows a call that has returned true. After the loop has been taken over, it runs on
	// a goroutine of its own, with the zero Turn, and nothing takes over from it.
	Continue(Turn) (again bool)

	// TakenOver is called, on the goroutine that has taken the loop over, while any of the methods
	// runs or blocks, or before it has begun.
	TakenOver(Turn) (again bool)
}
