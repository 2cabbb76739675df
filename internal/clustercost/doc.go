// Package clustercost counts what a cluster of 10, 100 and 1,000 nodes costs, in virtual time and without a network: packets, bytes
// and calls of the store, for what happens in every cluster. The tests are the package; it exports nothing.
//
// A test runs the same work in a small and in a large cluster, and fails if the cost of a unit of work grows faster than the table
// in growth_test.go permits. The counts do not depend on the machine. CPU time is logged, and never asserted.
//
//	go test ./internal/clustercost -v                                 10 and 30 nodes
//	PENSTOCK_TESTS=full go test ./internal/clustercost -v             10 and 100 nodes
//	PENSTOCK_TESTS=1m go test ./internal/clustercost -v -timeout 1h   10 and 1,000 nodes: 1 to 5 minutes, and up to 5 GB, for each work
package clustercost
