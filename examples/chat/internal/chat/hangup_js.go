package chat

import "os"

// notifyHangup relays nothing: this system has no SIGHUP.
func notifyHangup(chan<- os.Signal) {}
