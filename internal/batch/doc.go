// Package batch contains what every limiter on a remote store needs: a [Batcher], which lets
// concurrent calls share round trips; a [Policy], which decides about token buckets, and a
// [RecordPolicy], which decides about windows, quotas and cooldowns. Both answer floods of denied
// calls without a round trip. The package knows no store.
package batch
