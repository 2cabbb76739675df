// Command chat is Penstock's reference application: chat rooms with presence, message
// history, search and visible rate limits. Run it and open http://localhost:8080 in two
// browser windows.
//
// Read run.go of package internal/chat, then server.go, then rooms.go. The program is a package, so that a
// module with other dependencies can run it: see the folder postgres.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock-go/penstock/examples/chat/internal/chat"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(chat.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
