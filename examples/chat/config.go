package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// A config is what the flags say.
type config struct {
	addr     string
	metrics  string // address; "": nobody is shown them
	policy   limit.Policy
	try      *limit.Policy // looks on; nil: there is none
	key      func(router.IngressContext) limit.Key
	reaction router.LimitAction
	limits   router.Limits
	redis    *goredis.Client // nil: this node is alone
}

var keys = map[string]func(router.IngressContext) limit.Key{
	"user-type":       ratelimit.KeyPerUserPerType,
	"user-or-ip-type": ratelimit.KeyPerUserOrIPPerType,
	"user":            ratelimit.KeyPerUser,
	"conn":            ratelimit.KeyPerConn,
	"ip":              ratelimit.KeyPerIP,
	"type":            ratelimit.KeyPerType,
}

var reactions = map[string]router.LimitAction{
	"send":   router.ActionSend,
	"close":  router.ActionClose,
	"custom": router.ActionCustom,
}

// parseFlags returns flag.ErrHelp if it has shown the usage.
func parseFlags(args []string, usage io.Writer) (config, error) {
	cfg := config{policy: limit.Policy{Name: "chat"}}
	fs := flag.NewFlagSet("chat", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.addr, "addr", "localhost:8080", "`host:port` to listen on")
	fs.StringVar(&cfg.metrics, "metrics-addr", "", "`host:port` that shows /metrics, best one that clients cannot reach; the same as -addr shows them to everybody; without it, nobody sees them")
	fs.Int64Var(&cfg.policy.Capacity, "capacity", 20, "`tokens` that may be spent at once")
	fs.Int64Var(&cfg.policy.Refill, "refill", 5, "`tokens` that come back every second")
	fs.Func("try", "`policy` to watch, such as \"2/s burst 10\": it refuses nobody, and the metrics show what it would", func(text string) error {
		policy, err := limit.ParsePolicy(text)
		policy.Name = "try"
		cfg.try = &policy
		return err
	})
	key := fs.String("key", "user-or-ip-type", "who shares a budget: "+names(keys))
	reaction := fs.String("on-exceeded", "send", "what a client over its budget gets: "+names(reactions))
	fs.Int64Var(&cfg.limits.MaxMessageBytes, "max-bytes", 16384, "most `bytes` of a message")
	redisURL := fs.String("redis", "", "`URL` of the Redis that nodes share, such as redis://localhost:6379; without it, this node is alone")
	fs.IntVar(&cfg.limits.Concurrency, "max-in-flight", 16, "most `calls` of a connection that are not answered yet")

	err := fs.Parse(args)
	switch {
	case err == flag.ErrHelp: //nolint:errorlint // Parse returns it itself
		fs.SetOutput(usage)
		fs.Usage()
		return cfg, err
	case err != nil:
		return cfg, err
	case fs.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := cfg.complete(*key, *reaction); err != nil || *redisURL == "" {
		return cfg, err
	}
	return cfg, cfg.connect(*redisURL)
}

// connect does not wait for Redis: a node that is cut off from it still serves.
func (cfg *config) connect(url string) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("-redis is %q; it must be like redis://user:password@localhost:6379/0", url)
	}
	cfg.redis = goredis.NewClient(opts)
	return nil
}

func (cfg *config) complete(key, reaction string) error {
	var ok bool
	if cfg.key, ok = keys[key]; !ok {
		return fmt.Errorf("-key is %q; it must be one of %s", key, names(keys))
	}
	if cfg.reaction, ok = reactions[reaction]; !ok {
		return fmt.Errorf("-on-exceeded is %q; it must be one of %s", reaction, names(reactions))
	}
	for name, value := range map[string]int64{
		"-capacity":      cfg.policy.Capacity,
		"-refill":        cfg.policy.Refill,
		"-max-bytes":     cfg.limits.MaxMessageBytes,
		"-max-in-flight": int64(cfg.limits.Concurrency),
	} {
		if value < 1 {
			return fmt.Errorf("%s is %d; it must be at least 1", name, value)
		}
	}
	return cfg.policy.Validate()
}

// names lists the keys of a map.
func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
