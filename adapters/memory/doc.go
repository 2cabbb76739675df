// Package memory implements limiters, semaphores, cooldowns, outbound budgets and a broker in
// one process.
package memory
