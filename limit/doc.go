// Package limit defines the contract of rate limiters, which decide how many tokens each client
// may spend over time. It depends on no transport, so its limiters serve HTTP, gRPC, WebSockets
// and background workers alike.
//
// A [Limiter] keeps one token bucket per [Key] and answers with a [Decision]. Its [Policy] can be
// replaced by a [WindowPolicy], a [QuotaPolicy] or a [CooldownPolicy], each with limiters of its
// own:
//
//	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//	d, err := limit.Consume(ctx, limiter, limit.Key{"user", "ann"}, 1)
//
// Package adapters/memory implements the contract in one process, packages adapters/redis,
// adapters/postgres and adapters/durableobject for many processes. Package middleware/ratelimit
// puts a limiter in front of a router, and package middleware/httplimit in front of an HTTP
// handler.
//
// # One operation
//
// A limiter has one operation, [Limiter.Take]. The functions of this package are its usual forms:
//
//   - [Consume] takes a cost, or nothing.
//   - [ConsumeKeeping] leaves a share of a bucket to more important calls.
//   - [ConsumeUpTo] grants a part of a cost.
//   - [Reserve] takes tokens that a bucket will hold later; see [Wait].
//   - [Charge] charges for a call that another limiter has admitted.
//   - [Receipt.Undo] returns what a call took, and [Refund] returns any tokens.
//   - [ConsumeAll] decides about several limiters and keys; see [AllOf].
//
// A limiter that cannot do one of them says so by an error. Package limit/mode has the forms by name.
//
// # Optional interfaces
//
// Limiters may implement more than Limiter; callers detect it with a type assertion. A [Blocker] bans a
// key for some time, and fills its bucket. A [PolicySetter] changes its policy while it is in use.
// Package limit/adapter has further ones, for those who implement limiters.
//
// # Exactness
//
// Buckets are counted in whole numbers. The decisions of a limiter equal those of a token
// bucket of rational numbers, in every adapter; see Units of package
// limit/adapter. Package limittest tests
// adapters against that.
package limit
