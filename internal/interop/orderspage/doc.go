// Package orderspage tests the page of examples/orders in Chromium, with the program as a process on a
// real PostgreSQL.
package orderspage
