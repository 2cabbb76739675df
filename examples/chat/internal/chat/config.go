package chat

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/recorder"
	"github.com/penstock-go/penstock/router"
)

// A config holds the parsed and validated flags.
type config struct {
	addr        string
	metricsAddr string // empty: /metrics is not served; equal to addr: on the public port

	policy       limit.Policy
	dryRunPolicy *limit.Policy // measured, not enforced; nil: none
	limitsPath   string        // of a file that replaces the numbers of both; empty: none
	key          func(router.IngressContext) limit.Key
	limitAction  router.LimitAction
	limits       router.Limits
	lameDuck     time.Duration

	redis  *goredis.Client // nil: the rate limits are in memory
	broker broker.Broker   // nil: a single node with rooms and history in memory
	nodes  int             // that share redis

	recordDir string             // empty: no trace is recorded
	recorder  *recorder.Recorder // nil: no trace is recorded; run opens it
}

var keys = map[string]func(router.IngressContext) limit.Key{
	"user-type":       ratelimit.KeyPerUserPerType,
	"user-or-ip-type": ratelimit.KeyPerUserOrIPPerType,
	"user":            ratelimit.KeyPerUser,
	"conn":            ratelimit.KeyPerConn,
	"ip":              ratelimit.KeyPerIP,
	"type":            ratelimit.KeyPerType,
}

var limitActions = map[string]router.LimitAction{
	"send":   router.ActionSend,
	"close":  router.ActionClose,
	"custom": router.ActionCustom,
}

// A Store connects nodes, as Redis does. The program has a flag for it.
type Store struct {
	Flag, Usage string // of the flag, whose value is a URL

	// Open returns the broker when the store is prepared. An error ends the program.
	Open func(url string) (broker.Broker, error)
}

// parseFlags returns flag.ErrHelp after it has written the usage.
func parseFlags(args []string, usage io.Writer, stores ...Store) (config, error) {
	cfg := config{policy: limit.Policy{Name: "chat"}}
	fs := flag.NewFlagSet("chat", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.addr, "addr", "localhost:8080", "`host:port` to listen on")
	fs.StringVar(&cfg.metricsAddr, "metrics-addr", "", "`host:port` to serve /metrics on, preferably one that clients cannot reach; the value of -addr makes the metrics public; if empty, they are not served")
	fs.Int64Var(&cfg.policy.Capacity, "capacity", 20, "`tokens` that a full bucket holds: the largest burst of messages; a search costs 5 tokens, every other message 1")
	fs.Int64Var(&cfg.policy.Refill, "refill", 5, "`tokens` added to a bucket per second")
	fs.Func("try", "`policy` to evaluate as a dry run, such as \"2/s burst 10\": it rejects no messages, and the metrics show what it would reject", func(text string) error {
		policy, err := limit.ParsePolicy(text)
		policy.Name = "try"
		cfg.dryRunPolicy = &policy
		return err
	})
	fs.StringVar(&cfg.limitsPath, "limits", "", "`file` with the rate limit, such as \"chat: 5/s burst 20\", and with -try a line for try; it replaces -capacity and -refill, and its changes apply while the server runs")
	key := fs.String("key", "user-or-ip-type", "`key` that selects the bucket: messages with the same key share a rate limit; one of "+names(keys))
	action := fs.String("on-exceeded", "send", "`action` when a client exceeds its rate limit: send an error, close the connection, or send a custom SLOW_DOWN message; one of "+names(limitActions))
	fs.Int64Var(&cfg.limits.MaxMessageBytes, "max-bytes", 16384, "maximum size of a message in `bytes`")
	fs.StringVar(&cfg.recordDir, "record", "", "`directory` for a trace of all messages, which \"penstock simulate\" replays; it contains hashes instead of names, and takes up to 256 MiB")
	urls := map[string]*string{}
	for _, s := range stores {
		urls[s.Flag] = fs.String(s.Flag, "", s.Usage)
	}
	redisURL := fs.String("redis", "", "`URL` of the Redis server that the nodes share, such as redis://localhost:6379; if empty, this node runs alone")
	fs.IntVar(&cfg.nodes, "nodes", 1, "`number` of nodes that share the Redis server: while it does not answer, each node admits its share of the rate limit, so that all nodes together admit about as many messages as before")
	fs.DurationVar(&cfg.lameDuck, "lame-duck", 0, "`duration` of the first phase of a graceful shutdown, in which the health check fails and clients are still accepted; behind a load balancer, longer than it takes to notice, such as 5s")
	fs.IntVar(&cfg.limits.Concurrency, "max-in-flight", 64, "maximum number of concurrent `calls` per connection")
	fs.IntVar(&cfg.limits.ConnsPerUser, "max-connections", 50, "maximum number of `connections` of one user on this node; 0 means unlimited")

	err := fs.Parse(args)
	switch {
	case err == flag.ErrHelp: //nolint:errorlint // Parse returns it unwrapped
		fs.SetOutput(usage)
		fs.Usage()
		return cfg, err
	case err != nil:
		return cfg, err
	case fs.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if cfg.limitsPath != "" && (isSet(fs, "capacity") || isSet(fs, "refill")) {
		return cfg, errors.New("-limits has the rate limit; it cannot be combined with -capacity or -refill")
	}
	if err := cfg.complete(*key, *action); err != nil {
		return cfg, err
	}
	for _, s := range stores {
		if url := *urls[s.Flag]; url != "" {
			if isSet(fs, "redis") || isSet(fs, "nodes") {
				return cfg, fmt.Errorf("-%s cannot be combined with -redis and -nodes", s.Flag)
			}
			if cfg.broker, err = s.Open(url); err != nil {
				err = fmt.Errorf("-%s: %w", s.Flag, err)
			}
			return cfg, err
		}
	}
	if *redisURL == "" {
		return cfg, nil
	}
	return cfg, cfg.connect(*redisURL)
}

func isSet(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// connect does not wait for Redis: a node without Redis still serves its own clients.
func (cfg *config) connect(url string) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("-redis is %q; it must be a URL such as redis://user:password@localhost:6379/0", url)
	}
	cfg.redis = goredis.NewClient(opts)
	cfg.broker = redis.NewBroker(cfg.redis)
	return nil
}

// hasMetricsListener reports whether /metrics has a port of its own.
func (cfg *config) hasMetricsListener() bool {
	return cfg.metricsAddr != "" && cfg.metricsAddr != cfg.addr
}

const maxNodes = 1000

// complete resolves the names that flags take and validates all values.
func (cfg *config) complete(key, action string) error {
	var ok bool
	if cfg.key, ok = keys[key]; !ok {
		return fmt.Errorf("-key is %q; it must be one of %s", key, names(keys))
	}
	if cfg.limitAction, ok = limitActions[action]; !ok {
		return fmt.Errorf("-on-exceeded is %q; it must be one of %s", action, names(limitActions))
	}
	for name, value := range map[string]int64{
		"-capacity":      cfg.policy.Capacity,
		"-refill":        cfg.policy.Refill,
		"-max-bytes":     cfg.limits.MaxMessageBytes,
		"-max-in-flight": int64(cfg.limits.Concurrency),
		"-nodes":         int64(cfg.nodes),
	} {
		if value < 1 {
			return fmt.Errorf("%s is %d; it must be at least 1", name, value)
		}
	}
	if cfg.nodes > maxNodes {
		return fmt.Errorf("-nodes is %d; it must be at most %d", cfg.nodes, maxNodes)
	}
	if cfg.limits.ConnsPerUser < 0 {
		return fmt.Errorf("-max-connections is %d; it must not be negative", cfg.limits.ConnsPerUser)
	}
	if cfg.lameDuck < 0 {
		return fmt.Errorf("-lame-duck is %v; it must not be negative", cfg.lameDuck)
	}
	if err := cfg.policy.Validate(); err != nil {
		return err
	}
	for _, policy := range []*limit.Policy{&cfg.policy, cfg.dryRunPolicy} {
		if policy == nil {
			continue
		}
		if _, err := perNode(*policy, cfg.nodes); err != nil {
			return err
		}
	}
	return nil
}

// names returns the keys of m, sorted and separated by commas.
func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
