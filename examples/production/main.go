// Command production is a server with what operation needs: two nodes or more behind a load balancer, limits from a
// file, metrics, traces, health checks and a graceful shutdown. compose.yaml runs it with Redis, HAProxy, Prometheus,
// Grafana and an OpenTelemetry collector. What it serves is small: a counter that all visitors share.
//
// Copy the folder to begin an application. Read main.go, then server.go and counter.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	lameDuck        = 5 * time.Second  // until the load balancer has noticed
	shutdownTimeout = 35 * time.Second // includes lameDuck; stop_grace_period of compose.yaml is longer
)

// A config holds the validated flags.
type config struct {
	addr        string
	metricsAddr string
	redis       string
	limits      string
	proxies     netip.Prefix
	check       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := parseFlags(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "production: %v\n", err)
		os.Exit(2)
	case cfg.check != "":
		err = check(ctx, cfg.check)
	default:
		err = run(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "production: %v\n", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("production", flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", ":8080", "`host:port` to listen on")
	flags.StringVar(&cfg.metricsAddr, "metrics-addr", ":9090", "`host:port` to serve /metrics on, and /inspect/ if INSPECTOR_PASSWORD is set, which clients must not reach")
	flags.StringVar(&cfg.redis, "redis", "redis://localhost:6379", "`URL` of the Redis server that the nodes share")
	flags.StringVar(&cfg.limits, "limits", "limits/limits.txt", "`file` with the rate limits; its changes apply while the server runs")
	flags.TextVar(&cfg.proxies, "proxies", netip.MustParsePrefix("127.0.0.1/32"), "`network` of the load balancer, whose X-Forwarded-For is trusted")
	flags.StringVar(&cfg.check, "check", "", "`URL` of a health check: request it and exit, with status 1 if it fails")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return cfg, nil
}

// check requests a health check, for images that have no other program that could.
func check(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("-check: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// run serves until ctx ends, then shuts down gracefully.
func run(ctx context.Context, cfg config) (err error) {
	tracer, flush, err := newTracer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flush()) }()
	server, err := newServer(ctx, cfg, tracer)
	if err != nil {
		return err
	}
	public := &http.Server{Addr: cfg.addr, Handler: server.public, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	private := &http.Server{Addr: cfg.metricsAddr, Handler: server.private, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 2) // buffered: both also return after Shutdown, when nothing receives
	for _, one := range []*http.Server{public, private} {
		listener, err := net.Listen("tcp", one.Addr)
		if err != nil {
			return err
		}
		go func() { failed <- one.Serve(listener) }()
		slog.Info("listening", "addr", listener.Addr().String())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("shutting down")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	// The HTTP servers stop last, so that health checks and metrics can report the shutdown.
	return errors.Join(server.router.Shutdown(ctx), public.Shutdown(ctx), private.Shutdown(ctx))
}
