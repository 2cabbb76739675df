// Package simnet is a network in memory for tests in a testing/synctest bubble. Hosts listen and dial; what
// one end of a connection writes arrives at the other end after a delay in virtual time, drawn from a seed.
//
// Faults act on hosts: [Network.Cut] resets connections at a random byte, [Network.Stall] holds back what is
// on its way, [Network.Abandon] breaks connections without a notice, and [Network.SetDown] refuses new ones.
//
// A connection has one lock for both of its ends, which is acquired after the lock of the network. Nothing is
// called under either.
package simnet
