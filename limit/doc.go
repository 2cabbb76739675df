// Package limit defines the contract of rate limiters, which decide how many tokens each client
// may spend over time. It depends on no transport, so its limiters serve HTTP, gRPC, WebSockets
// and background workers alike.
//
// A [Limiter] keeps one token bucket per [Key] and answers with a [Decision]:
//
//	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//	d, err := limiter.Consume(ctx, limit.Key{"user", "ann"}, 1)
//
// Package adapters/memory implements the contract in one process, package adapters/redis for
// many processes. Package middleware/ratelimit puts a limiter in front of a router.
//
// # Optional interfaces
//
// Limiters may implement more than Limiter; callers detect it with a type assertion:
//
//   - [Refunder] returns tokens to a bucket.
//   - [Blocker] bans a key for some time.
//   - [Reserver] takes tokens that a bucket will hold later.
//   - [BatchLimiter] decides together with other limiters in one call; see [AllOf].
//   - [InProcess] marks limiters that decide without a network.
//
// # Exactness
//
// Buckets are counted in whole numbers. The decisions of a limiter equal those of a token
// bucket of rational numbers, in every adapter; see [Units]. Package limittest tests
// adapters against that.
package limit
