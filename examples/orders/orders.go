package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres"
	"github.com/penstock-go/penstock/router"
)

//go:embed index.html
var indexPage []byte

// OrderPlaced is published with each order that is stored.
type OrderPlaced struct {
	ID       string    `json:"id"` // chosen by the client
	Item     string    `json:"item"`
	Quantity int       `json:"quantity"`
	PlacedAt time.Time `json:"placedAt"`
}

func (OrderPlaced) MessageType() string { return "ORDER_PLACED" }

const (
	topic = "orders"

	maxShown  = 100     // orders that a page loads
	maxMissed = 500     // orders that a page receives when it connects again; after more, it loads them
	maxBody   = 4 << 10 // bytes

	maxItemBytes, maxQuantity = 200, 1000
)

// A shop has its orders in PostgreSQL.
type shop struct {
	pool   *pgxpool.Pool
	router *router.Router
}

// migrate creates the tables of the broker and of the shop. All nodes may call it at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Without the lock, CREATE TABLE IF NOT EXISTS fails on nodes that start at once.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('orders'))"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS orders (
			id uuid PRIMARY KEY, item text NOT NULL, quantity int NOT NULL, placed_at timestamptz NOT NULL)`)
		return err
	})
}

func newShop(pool *pgxpool.Pool) *shop {
	s := &shop{pool: pool}
	s.router = router.New(&router.Options{Broker: postgres.NewBroker(pool, nil)})
	router.Topic(s.router, topic, &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil }, // all visitors see all orders
		History:   router.History{Messages: maxMissed, Age: time.Hour},
		Messages:  []router.Message{OrderPlaced{}},
	})
	return s
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s.router)
	mux.HandleFunc("GET /healthz", s.router.ServeHealth)
	mux.HandleFunc("GET /orders", s.list)
	mux.HandleFunc("PUT /orders/{id}", s.put)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(indexPage)
	})
	return mux
}

// put stores an order and answers 201, or 200 if an order with this ID is stored: a client that receives no answer
// sends its request again.
func (s *shop) put(w http.ResponseWriter, req *http.Request) {
	var o OrderPlaced
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody)).Decode(&o); err != nil {
		http.Error(w, "the body must be an order, such as {\"item\":\"book\",\"quantity\":2}", http.StatusBadRequest)
		return
	}
	o.ID, o.PlacedAt = req.PathValue("id"), time.Now().UTC()
	if !uuid.MatchString(o.ID) || o.Item == "" || len(o.Item) > maxItemBytes || o.Quantity < 1 || o.Quantity > maxQuantity {
		http.Error(w, "an order needs a UUID, an item of 1 to 200 bytes, and a quantity from 1 to 1000", http.StatusBadRequest)
		return
	}
	isNew, err := s.place(req.Context(), o)
	switch {
	case err != nil:
		slog.Error("order not stored", "id", o.ID, "err", err)
		http.Error(w, "it is unknown whether the order is stored; send it again", http.StatusServiceUnavailable)
	case isNew:
		w.WriteHeader(http.StatusCreated)
	}
}

// place stores an order and publishes it, unless an order with its ID is stored. Both happen in one
// transaction: pages receive the order if and only if it commits. After an error, it may have committed.
func (s *shop) place(ctx context.Context, o OrderPlaced) (isNew bool, err error) {
	publication, err := s.router.PrepareAppend(topic, o)
	if err != nil {
		return false, err
	}
	err = postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		const insert = "INSERT INTO orders (id, item, quantity, placed_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
		tag, err := tx.Exec(ctx, insert, o.ID, o.Item, o.Quantity, o.PlacedAt)
		if err != nil {
			return err
		}
		if isNew = tag.RowsAffected() == 1; !isNew {
			return nil
		}
		return postgres.Publish(ctx, tx, publication)
	})
	return isNew, err
}

// list answers with the newest orders. A page calls it when it has subscribed, so no order is missing between both.
func (s *shop) list(w http.ResponseWriter, req *http.Request) {
	rows, err := s.pool.Query(req.Context(), "SELECT id::text, item, quantity, placed_at FROM orders ORDER BY placed_at DESC LIMIT $1", maxShown)
	if err == nil {
		var orders []OrderPlaced
		if orders, err = pgx.CollectRows(rows, pgx.RowToStructByPos[OrderPlaced]); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(orders)
			return
		}
	}
	slog.Error("orders not read", "err", err)
	http.Error(w, "the orders cannot be read; try again", http.StatusServiceUnavailable)
}

// uuid matches lower case only: PostgreSQL writes it.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
