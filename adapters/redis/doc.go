// Package redis implements limiters (token buckets, sliding windows, quotas and cooldowns),
// semaphores and a broker on Redis or Valkey: one node, Sentinel or Cluster.
//
// Applications that share a server need a namespace each: see [WithNamespace].
//
// A client is any client of github.com/redis/go-redis/v9. Its owner closes it; nothing in this
// package does.
package redis
