// Package broker defines the contract between the nodes of a cluster: how publications of one node
// reach the others. Packages adapters/memory, adapters/redis and adapters/postgres implement it;
// package brokertest tests implementations, and its example is a complete one.
package broker
