// Package batch contains what every limiter on a remote store needs: a [Batcher], which lets
// concurrent calls share round trips, and a [Policy], which decides about token buckets and answers
// floods of denied calls without a round trip. It knows no store.
package batch
