// Package redisclient is what adapters/redis and outbound/redisbudget share of their use of Redis:
// the namespace of a client, scripts that no client runs twice, and round trips that concurrent
// calls share.
package redisclient
