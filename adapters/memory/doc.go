// Package memory implements limiters (token buckets, sliding windows, quotas and cooldowns),
// semaphores and a broker in one process.
package memory
