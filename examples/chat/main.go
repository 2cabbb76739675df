// Command chat is Penstock's reference application: rooms, who is in them, what
// was said, and limits that a person can see at work. Run it and open
// http://localhost:8080 in two windows.
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

// drainTime is how long connections have to end after Ctrl-C.
const drainTime = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "chat: %v\n", err)
		return 2
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		fmt.Fprintf(stderr, "chat: -addr: %v\n", err)
		return 2
	}
	chat := newServer(cfg)
	if cfg.metrics != "" && cfg.metrics != cfg.addr {
		aside, err := net.Listen("tcp", cfg.metrics)
		if err != nil {
			_ = listener.Close()
			fmt.Fprintf(stderr, "chat: -metrics-addr: %v\n", err)
			return 2
		}
		fmt.Fprintf(stdout, "chat: metrics on http://%s/metrics\n", aside.Addr())
		defer showMetrics(aside, chat.metrics)()
	}
	if err := serve(ctx, listener, chat, stdout); err != nil {
		fmt.Fprintf(stderr, "chat: %v\n", err)
		return 1
	}
	return 0
}

// showMetrics serves them until stop is called, so that a drain can be watched.
func showMetrics(listener net.Listener, metrics http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	aside := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = aside.Serve(listener) }() // it ends with stop
	return func() { _ = aside.Close() }
}

func serve(ctx context.Context, listener net.Listener, chat *server, stdout io.Writer) error {
	web := &http.Server{Handler: chat, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	fmt.Fprintf(stdout, "chat: open http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "chat: draining")
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := chat.drain(ctx); err != nil {
		fmt.Fprintf(stdout, "chat: some connections were cut: %v\n", err)
	}
	return web.Shutdown(ctx)
}
