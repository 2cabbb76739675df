package redisbudget_test

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/redisbudget"
)

// The example calls TryAcquire and Update itself. A program passes the budget to
// outbound.NewTransport, which does so for every request of an http.Client.
func ExampleNew() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	budget := redisbudget.New(client, "{mybot}:", &outbound.BudgetOptions{GlobalLimit: 50})
	ctx := context.Background()
	first, err := budget.TryAcquire(ctx, "GET /users")
	fmt.Println("may send:", first.Wait == 0, err)
	second, err := budget.TryAcquire(ctx, "GET /users") // waits until the first response reports the limit
	fmt.Println("may send:", second.Wait == 0, err)
	err = budget.Update(ctx, "GET /users", first, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Second})
	fmt.Println(client.Get(ctx, "{mybot}:GET /users:remaining").Val(), err)
	// Output:
	// may send: true <nil>
	// may send: false <nil>
	// 4 <nil>
}
