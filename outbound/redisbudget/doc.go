// Package redisbudget keeps the budgets of package outbound on Redis or Valkey (one node, Sentinel or
// Cluster), where several processes share them.
package redisbudget
