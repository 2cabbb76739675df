// Package redis stands limiters, cooldowns, slots, outbound budgets and a broker on Redis, or on what speaks like it: one
// node, Sentinel, Cluster; Valkey.
//
// A client is any of github.com/redis/go-redis/v9 and stays its owner's: nothing
// here closes it.
package redis
