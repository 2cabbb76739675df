package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/limit"
)

// Several servers share a limit per second and a quota per month. A call takes from both or from
// none, in one round trip.
func ExampleLimits() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, ""); err != nil {
		panic(err)
	}
	limits := postgres.NewLimitStore(pool, "")
	perSecond := limits.NewLimiter(limit.PerSecond(10).Burst(20).Named("requests"))
	perMonth := limits.NewQuota(limit.QuotaPolicy{Name: "plan", Max: 100_000, Period: limit.Month})
	both := limit.AllOf(perSecond, perMonth)

	d, err := limit.Consume(ctx, both, limit.Key{"customer", "42"}, 1)
	switch {
	case err != nil: // the database could not decide
		fmt.Println(err)
	case !d.Allowed:
		fmt.Printf("%s is exceeded; retry after %v\n", d.Policy, d.RetryAfter)
	}
}

var errQuota = errors.New("the customer has no orders left this month")

// An order counts against the quota of its customer if and only if it is stored.
func ExampleWithTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	orders := postgres.NewLimitStore(pool, "").NewQuota(limit.QuotaPolicy{Name: "orders", Max: 100, Period: limit.Month})

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (customer, item) VALUES ($1, $2)", "42", "book"); err != nil {
			return err
		}
		// Last, because others wait for the quota of this customer until the commit.
		d, err := limit.Consume(ctx, postgres.WithTx(tx, orders), limit.Key{"customer", "42"}, 1)
		if err == nil && !d.Allowed {
			err = errQuota // rolls the order back
		}
		return err
	})
	fmt.Println(err)
}

// At most 4 reports of a customer are rendered at the same time, on all servers together.
func ExampleLimitStore_NewSemaphore() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	reports := postgres.NewLimitStore(pool, "").NewSemaphore("reports", 4)

	permit, err := reports.Acquire(ctx, limit.Key{"customer", "42"})
	if err != nil || permit.Release == nil {
		fmt.Println("try again later")
		return
	}
	defer permit.Release()
	// Render the report.
}
