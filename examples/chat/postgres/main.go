// Command postgres is the chat with the flag -postgres: its nodes share rooms, presence and history through
// PostgreSQL instead of Redis. It is a module of its own, so that the chat does not require the driver of
// PostgreSQL.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/examples/chat/internal/chat"
)

const migrateTimeout = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(chat.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, store))
}

var store = chat.Store{
	Flag:  "postgres",
	Usage: "`URL` of the database that the nodes share, such as postgres://user@localhost:5432/chat; if empty, this node runs alone, or with -redis",
	Open:  openBroker,
}

// openBroker returns a broker, whose tables it creates in the schema penstock.
func openBroker(url string) (broker.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), migrateTimeout)
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := postgres.Migrate(ctx, pool, ""); err != nil {
		pool.Close()
		return nil, err
	}
	return postgres.NewBroker(pool, nil), nil // uses the pool until the process ends
}
