// Package chat is the program of examples/chat. Read run.go, then server.go, then rooms.go.
package chat

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/recorder"
)

// shutdownTimeout bounds the graceful shutdown after the lame-duck phase.
const shutdownTimeout = 10 * time.Second

// Run serves until ctx ends and returns the exit code: 2 for wrong flags, 1 if serving fails. The program has a
// flag for each store.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, stores ...Store) int {
	cfg, err := parseFlags(args, stdout, stores...)
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
	if cfg.recordDir != "" {
		var closeRecorder func()
		if cfg.recorder, closeRecorder, err = openRecorder(cfg.recordDir, stderr); err != nil {
			fmt.Fprintf(stderr, "chat: -record: %v\n", err)
			return 2
		}
		defer closeRecorder()
	}
	chat := newServer(cfg)
	if cfg.limitsPath != "" {
		hangups := make(chan os.Signal, 1)
		notifyHangup(hangups)
		defer signal.Stop(hangups)
		if err := chat.limits.follow(ctx, cfg.limitsPath, hangups); err != nil {
			_ = listener.Close()
			fmt.Fprintf(stderr, "chat: -limits: %v\n", err)
			return 2
		}
	}
	if cfg.hasMetricsListener() {
		metricsListener, err := net.Listen("tcp", cfg.metricsAddr)
		if err != nil {
			_ = listener.Close()
			fmt.Fprintf(stderr, "chat: -metrics-addr: %v\n", err)
			return 2
		}
		fmt.Fprintf(stdout, "chat: metrics on http://%s/metrics\n", metricsListener.Addr())
		defer serveMetrics(metricsListener, chat.metrics)()
	}
	if err := serve(ctx, listener, chat, cfg.lameDuck+shutdownTimeout, stdout); err != nil {
		fmt.Fprintf(stderr, "chat: %v\n", err)
		return 1
	}
	return 0
}

// openRecorder records messages until the caller calls closeRecorder.
func openRecorder(directory string, stderr io.Writer) (rec *recorder.Recorder, closeRecorder func(), err error) {
	report := func(err error) { fmt.Fprintf(stderr, "chat: %v\n", err) }
	rec, err = recorder.New(directory, &recorder.Options{Cost: cost, OnError: report})
	if err != nil {
		return nil, nil, err
	}
	return rec, func() {
		if err := rec.Close(); err != nil {
			report(err)
		}
	}, nil
}

// serveMetrics serves /metrics until the caller calls stop. Metrics remain available
// during the shutdown, which they measure.
func serveMetrics(listener net.Listener, metrics http.Handler) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends when stop closes the server
	return func() { _ = server.Close() }
}

// serve handles requests until ctx ends, then shuts down gracefully within timeout.
func serve(ctx context.Context, listener net.Listener, chat *server, timeout time.Duration, stdout io.Writer) error {
	httpServer := &http.Server{Handler: chat, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1) // buffered: Serve also returns after Shutdown, when nothing receives
	go func() { failed <- httpServer.Serve(listener) }()
	fmt.Fprintf(stdout, "chat: open http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "chat: shutting down")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// The HTTP server stops last, so that the health check can report the shutdown.
	if err := chat.router.Shutdown(ctx); err != nil {
		fmt.Fprintf(stdout, "chat: some connections did not close in time: %v\n", err)
	}
	return httpServer.Shutdown(ctx)
}
