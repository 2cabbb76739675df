// Command orders stores orders in PostgreSQL and shows them on all pages, on any number of nodes. The
// order and its publication are written in one transaction, so a page shows an order if and only if it
// is stored.
//
// Read main.go, then orders.go.
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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/errors"
)

const (
	startTimeout    = 30 * time.Second // to create the tables
	shutdownTimeout = 10 * time.Second
)

// A config holds the values of the flags.
type config struct {
	addr     string
	postgres *pgxpool.Config
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command returns the exit code: 2 for wrong flags, 1 if serving fails.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return 2
	}
	if err := run(ctx, cfg, stdout); err != nil {
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, usage io.Writer) (cfg config, err error) {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&cfg.addr, "addr", "localhost:8080", "`host:port` to listen on")
	url := flags.String("postgres", "postgres://localhost:5432/postgres", "`URL` of the database that the nodes share; the user may create tables in it")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if cfg.postgres, err = pgxpool.ParseConfig(*url); err != nil {
		return cfg, fmt.Errorf("-postgres must be a URL such as postgres://user:password@localhost:5432/shop: %w", err)
	}
	return cfg, nil
}

// run serves until ctx ends, then shuts down gracefully.
func run(ctx context.Context, cfg config, stdout io.Writer) error {
	pool, err := pgxpool.NewWithConfig(ctx, cfg.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	s := newShop(pool)
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1) // buffered: Serve also returns after Shutdown, when nothing receives
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "orders: open http://%s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(s.router.Shutdown(ctx), server.Shutdown(ctx))
}
