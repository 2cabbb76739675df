package postgres_test

import (
	"context"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/router"
)

// A node exports what waits in the outbox, and what it has stored, to Prometheus.
func ExampleOutbox_Backlog() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	promauto.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbox_oldest_seconds"}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		backlog, err := postgres.Outbox{}.Backlog(ctx, pool)
		if err != nil {
			return math.NaN()
		}
		return backlog.Oldest.Seconds()
	})
	lag := promauto.NewHistogram(prometheus.HistogramOpts{Name: "outbox_lag_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)})
	stored := promauto.NewCounter(prometheus.CounterOpts{Name: "outbox_publications_total"})
	broker := postgres.NewBroker(pool, &postgres.Options{Observe: func(b postgres.OutboxBatch) {
		lag.Observe(b.Lag.Seconds())
		stored.Add(float64(b.Publications))
	}})
	http.Handle("/ws", router.New(&router.Options{Broker: broker}))
	http.Handle("/metrics", promhttp.Handler())
}
