// Package postgres implements a broker with histories on PostgreSQL (14 or newer), and publishes in
// the transactions of the application: a publication exists if and only if the transaction commits.
// [LimitStore] are limiters and semaphores, which can also take in the transactions of the application.
//
// [Migrate] creates the tables, in a PostgreSQL schema of their own. Applications that share a
// database need a schema each.
package postgres
