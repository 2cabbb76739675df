package redis

import _ "embed"

// The source of the scripts.
var (
	//go:embed leases.lua
	leasesLua string
	//go:embed leases_change.lua
	leasesChangeLua string
	//go:embed limiter_time.lua
	limiterTimeLua string
	//go:embed limiter_bucket.lua
	limiterBucketLua string
	//go:embed limiter_consume_one.lua
	limiterConsumeOneLua string
	//go:embed limiter_consume_many.lua
	limiterConsumeManyLua string
	//go:embed limiter_consume_part.lua
	limiterConsumePartLua string
	//go:embed limiter_consume_multi.lua
	limiterConsumeMultiLua string
	//go:embed limiter_settle.lua
	limiterSettleLua string
	//go:embed limiter_block.lua
	limiterBlockLua string
	//go:embed semaphore_acquire.lua
	semaphoreAcquireLua string
)

// bucketLua returns the script about buckets that ends with some text.
func bucketLua(end string) string { return limiterTimeLua + leasesLua + limiterBucketLua + end }

// lazyBucketLua returns a script that calls bucket_functions if it needs the functions about buckets: most calls do
// not, and creating them would take a fifth of their time.
func lazyBucketLua(end string) string {
	return limiterTimeLua + "local function bucket_functions()\n" + leasesLua + limiterBucketLua +
		"return { read = read, write = write, lower_head = lower_head, first_end = first_end }\nend\n" + end
}

// leaseFunctionsLua returns a function that returns a table of those about leases: a script creates all its
// functions whenever it runs, and few calls need these.
func leaseFunctionsLua() string {
	return "local function lease_functions()\n" + leasesLua + leasesChangeLua +
		"return { end_all = end_leases, has_all = has_leases, add = add_lease, settle = settle_lease,\n" +
		"  parse = parse_leases, find = find_lease, format = format_leases, first_end = first_end }\nend\n"
}
