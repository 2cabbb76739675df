// Command aichat is a chat with a language model whose answers outlive the connection: a page that
// is reloaded continues its answer, a second tab sees the same answer, and a button stops it in all
// tabs. Each user has a budget of tokens. Run it and open http://localhost:8080.
//
// Read server.go, then answer.go and chats.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// shutdownTimeout bounds the graceful shutdown. It is longer than the time that answers have to
// end.
const shutdownTimeout = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(serveUntil(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// serveUntil serves until ctx ends and returns the exit code: 2 for wrong flags, 1 if serving
// fails.
func serveUntil(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, getenv, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "aichat: %v\n", err)
		return 2
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		fmt.Fprintf(stderr, "aichat: -addr: %v\n", err)
		return 2
	}
	if err := serve(ctx, listener, newServer(cfg), stdout); err != nil {
		fmt.Fprintf(stderr, "aichat: %v\n", err)
		return 1
	}
	return 0
}

// serve handles requests until ctx ends, then shuts down gracefully.
func serve(ctx context.Context, listener net.Listener, s *server, stdout io.Writer) error {
	httpServer := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1) // buffered: Serve also returns after Shutdown, when nothing receives
	go func() { failed <- httpServer.Serve(listener) }()
	fmt.Fprintf(stdout, "aichat: open http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return errors.Join(s.router.Shutdown(ctx), httpServer.Shutdown(ctx))
}
