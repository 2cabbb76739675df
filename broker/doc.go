// Package broker is the contract between the nodes of a cluster: how publications get
// from one node to the others. Packages adapters/memory and adapters/redis implement it;
// package brokertest tests implementations.
package broker
