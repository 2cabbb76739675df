// Package simtest tests a whole cluster in virtual time: nodes with every feature of the router, clients in a
// network that fails, and a store that fails, all of them in one testing/synctest bubble. The tests are the package; it
// exports nothing.
//
// A seed gives a plan: nodes, clients and steps. Each step has all its arguments, so any subset of the steps is a
// plan, too. While the steps run, the application, the clients and the store record what happens; afterwards all
// faults end, and what was recorded is compared with what docs/reference/guarantees.md and docs/protocol.md promise.
// A plan that fails is repeated with fewer steps until none can be left out, and is printed as a program, which
// becomes a test in scenarios_test.go.
//
// Every fourth seed is calm: it has no faults but graceful shutdowns, so any loss, notice, error or repetition
// is a fault of the product. Every third of the others is hot: queues and limits are small. All tolerances are
// constants of check_test.go, with the sentence of the documentation that permits them.
//
//	go test ./internal/simtest                          30 seeds
//	PENSTOCK_TESTS=full go test ./internal/simtest      2,000 seeds
//	make world                                          for as long as WORLDTIME says
//	go test ./internal/simtest -run TestSeed -seed 17   one seed, with its plan if it fails
//	make mutants                                        which seed finds each of the faults in testdata/mutants.txt
package simtest
