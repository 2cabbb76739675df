// Package batch contains what every limiter on a remote store needs. A [Limiter], of any kind, decides
// about takes, alone or jointly with others, and sends what it cannot decide to its [Store], which an
// adapter implements. A [Policy] decides about token buckets, and a [RecordPolicy] about windows, quotas
// and cooldowns; both answer floods of denied calls without a round trip. A [Batcher] lets concurrent
// calls share round trips. The package knows no store.
package batch
