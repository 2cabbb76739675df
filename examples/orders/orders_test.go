package main

import (
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/postgrestest"
)

var discard = slog.New(slog.DiscardHandler)

// newDatabase creates a database on the shared server and returns its URL.
func newDatabase(t *testing.T) string {
	t.Helper()
	url := postgrestest.Shared(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context()) //nolint:errcheck // nothing is left to do
	name := "orders_" + strings.ToLower(rand.Text())
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	return strings.Replace(url, "/postgres?", "/"+name+"?", 1)
}

func newTestShop(t *testing.T) *shop {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), newDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, migrate(t.Context(), pool))
	s := newShop(pool)
	t.Cleanup(func() { _ = s.router.Shutdown(t.Context()) })
	return s
}

func request(s *shop, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

func TestShop_RejectsInvalidOrders(t *testing.T) {
	s := newTestShop(t)
	for name, o := range map[string][2]string{
		"no JSON":     {orderID(1, 1), `book`},
		"no UUID":     {"1", `{"item":"book","quantity":1}`},
		"upper case":  {strings.ToUpper("abcdef00-0000-0000-0000-000000000000"), `{"item":"book","quantity":1}`},
		"no item":     {orderID(1, 1), `{"quantity":1}`},
		"long item":   {orderID(1, 1), `{"item":"` + strings.Repeat("x", maxItemBytes+1) + `","quantity":1}`},
		"no quantity": {orderID(1, 1), `{"item":"book"}`},
		"too many":    {orderID(1, 1), `{"item":"book","quantity":1001}`},
		"large":       {orderID(1, 1), `{"item":"` + strings.Repeat("x", maxBody) + `","quantity":1}`},
	} {
		assert.Equal(t, http.StatusBadRequest, request(s, "PUT", "/orders/"+o[0], o[1]).Code, name)
	}
	assert.JSONEq(t, "[]", request(s, "GET", "/orders", "").Body.String())
}

func TestShop_DatabaseThatFailsIsAnError(t *testing.T) {
	slog.SetDefault(discard)
	s := newTestShop(t)
	_, err := s.pool.Exec(t.Context(), "DROP TABLE orders")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, request(s, "PUT", "/orders/"+orderID(1, 1), `{"item":"book","quantity":1}`).Code)
	assert.Equal(t, http.StatusServiceUnavailable, request(s, "GET", "/orders", "").Code)
}

func TestShop_OrderIsStoredOnce(t *testing.T) {
	s := newTestShop(t)
	id := orderID(1, 1)
	assert.Equal(t, http.StatusCreated, request(s, "PUT", "/orders/"+id, `{"item":"book","quantity":2}`).Code)
	assert.Equal(t, http.StatusOK, request(s, "PUT", "/orders/"+id, `{"item":"book","quantity":2}`).Code)
	var orders []OrderPlaced
	require.NoError(t, json.Unmarshal(request(s, "GET", "/orders", "").Body.Bytes(), &orders))
	require.Len(t, orders, 1)
	assert.Equal(t, OrderPlaced{ID: id, Item: "book", Quantity: 2, PlacedAt: orders[0].PlacedAt}, orders[0])
	assert.Contains(t, request(s, "GET", "/", "").Body.String(), "<h1>Orders</h1>")
}
