package redistest

import (
	"context"
	"flag"
	"fmt"
	"os"
)

// Examples prepares a test binary whose examples call [EmptyServer]: without redis-server they are not
// run, or the binary fails if redis-server is required. TestMain calls it after flag.Parse.
func Examples() {
	err := lookup()
	if err == nil {
		return
	}
	if required(err) {
		fmt.Fprintf(os.Stderr, "redistest: %v; install Redis 7.0 or newer: %s requires it\n", err, requirements)
		os.Exit(1)
	}
	skip := "^Example"
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		skip = given + "|" + skip
	}
	_ = flag.Set("test.skip", skip)
}

// EmptyServer returns the address of a redis-server without keys, for an example: examples run one after
// the other, when no test runs.
func EmptyServer() string {
	server, err := shared()
	if err == nil {
		err = server.admin.FlushAll(context.Background()).Err()
	}
	if err != nil {
		panic(err)
	}
	return server.addr()
}
