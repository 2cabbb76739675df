// Package durableobject implements limiters (token buckets, sliding windows, quotas and cooldowns)
// and semaphores on Cloudflare Durable Objects, for servers in several regions that have no Redis
// between them.
//
// A [Client] sends HTTP requests to a Worker, which is in the directory worker and is deployed
// with wrangler; the Worker passes them to Durable Objects. One object has all limits of a key, so
// [limit.AllOf] of limiters with one client decides in one step, in one request. See
// docs/reference/durable-objects.md for the deployment, its costs and its latency.
package durableobject
