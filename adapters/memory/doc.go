// Package memory holds adapters that live in this process: limiters, cooldowns, slots and
// outbound budgets for a program that runs on one machine, and a broker for several routers in it.
package memory
