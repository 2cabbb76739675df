// Package outbound sends HTTP requests within the rate limits of a third-party API, such as
// Discord's. It reads the limits from the API's own response headers.
//
//	client := &http.Client{Transport: outbound.NewTransport(outbound.NewMemoryBudget(nil), nil)}
//
// Several processes share one budget through Redis: redisbudget.New(client, "{mybot}:", nil).
//
// # Budgets
//
// An API accepts a number of requests to a route in a time window. Every response says how many
// requests remain and when the window ends. A [Budget] keeps this state, and a [Transport]
// acquires each request from the Budget before it sends the request. A caller that has to wait
// tries again after the wait; the Budget reserves nothing for it.
//
// A client does not know in which of the API's windows a request counts until the response
// arrives: a request acquired at the end of one window may reach the API in the next.
// Therefore
//
//   - a window lasts until every response to its requests says that it has ended, and
//   - requests in flight at the end of a window also count in the next window.
//
// No window of the API then receives more requests than its limit, whatever the latencies are,
// provided that every request is answered within the lease ([BudgetOptions.Lease]). A request
// without a response counts as lost after the lease, so a process that dies delays the others
// for one lease at most.
//
// # Several limits
//
// A request may count against several limits: each policy in the RateLimit header field
// (draft-ietf-httpapi-ratelimit-headers-11), the periods of a gateway, and the bucket in Discord's X-RateLimit-Bucket, which
// routes share. The Transport learns them from the responses on a route and then acquires each
// request from all of them.
//
// # Unknown limits
//
// While the limit of a route is unknown, the Budget permits one request at a time. A successful
// response without rate limit headers shows that the route has no limit; the Budget remembers
// this for an hour. A header that may be about a limit, but that [ParseHeaders] does not know, leaves
// it unknown.
package outbound
