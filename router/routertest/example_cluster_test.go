//go:build !js

package routertest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// The messages of the application.
type (
	PlaceOrder  struct{ ID string }
	OrderPlaced struct{ ID string } // the reply, and a publication of the topic "orders"
	FindOrder   struct{ ID string }
	Order       struct{ ID string }
)

func (PlaceOrder) MessageType() string  { return "PLACE_ORDER" }
func (OrderPlaced) MessageType() string { return "ORDER_PLACED" }
func (FindOrder) MessageType() string   { return "FIND_ORDER" }
func (Order) MessageType() string       { return "ORDER" }

// A database is shared by all nodes. Storing an order takes some time.
type database struct {
	mu     sync.Mutex
	orders map[string]bool
}

func (db *database) store(ctx context.Context, id string) error {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.orders[id] = true
	return nil
}

func (db *database) contains(id string) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.orders[id]
}

// A shop is the application of one node.
type shop struct {
	*router.Router

	db *database
}

// newShop starts the application of a node, with a handler of PLACE_ORDER.
func newShop(b broker.HistoryBroker, db *database, place func(*shop, *router.Context, PlaceOrder) (OrderPlaced, error)) *shop {
	s := &shop{router.New(&router.Options{Broker: b}), db}
	router.Topic(s.Router, "orders", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 1000, Age: time.Hour},
	})
	router.RPC(s.Router, func(ctx *router.Context, m PlaceOrder) (OrderPlaced, error) { return place(s, ctx, m) })
	router.RPC(s.Router, s.find)
	return s
}

// publishAndStore has a fault: it publishes before it stores.
func (s *shop) publishAndStore(ctx *router.Context, m PlaceOrder) (OrderPlaced, error) {
	if err := s.Publish("orders", OrderPlaced(m), router.Stored(ctx, nil)); err != nil {
		return OrderPlaced{}, err
	}
	return OrderPlaced(m), s.db.store(ctx, m.ID)
}

// storeAndPublish has not.
func (s *shop) storeAndPublish(ctx *router.Context, m PlaceOrder) (OrderPlaced, error) {
	if err := s.db.store(ctx, m.ID); err != nil {
		return OrderPlaced{}, err
	}
	return OrderPlaced(m), s.Publish("orders", OrderPlaced(m), router.Stored(ctx, nil))
}

func (s *shop) find(_ *router.Context, m FindOrder) (Order, error) {
	if !s.db.contains(m.ID) {
		return Order{}, errors.Errorf(errors.NotFound, "there is no order %s", m.ID)
	}
	return Order(m), nil
}

// checkOrders places an order, and checks that who is notified of it can read it, on whatever node.
func checkOrders(t testing.TB, start func(broker.HistoryBroker, *database) routertest.App) {
	db := &database{orders: map[string]bool{}}
	cluster := routertest.NewCluster(t, func(b broker.HistoryBroker) routertest.App { return start(b, db) }, nil)
	ann, bob := cluster.Client("ann", nil), cluster.Client("bob", nil)
	for _, c := range []*client.Client{ann, bob} {
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	client.On(bob, func(m OrderPlaced, _ *client.Received) {
		if _, err := client.Call[Order](t.Context(), bob, FindOrder(m)); err != nil {
			t.Errorf("bob is notified of order %s and cannot read it: %v", m.ID, err)
		}
	})
	if _, err := bob.Subscribe(t.Context(), "orders", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call[OrderPlaced](t.Context(), ann, PlaceOrder{"A1"}); err != nil {
		t.Errorf("ann cannot place an order: %v", err)
	}
	cluster.Wait(time.Minute)
}

// This test finds a handler that publishes before it stores: who receives the publication on another node is faster
// than the database. With storeAndPublish, it passes.
func ExampleNewCluster() {
	var t *testing.T // the parameter of func TestOrders(t *testing.T)

	synctest.Test(t, func(t *testing.T) {
		checkOrders(t, func(b broker.HistoryBroker, db *database) routertest.App {
			return newShop(b, db, (*shop).publishAndStore)
		})
	})
}
