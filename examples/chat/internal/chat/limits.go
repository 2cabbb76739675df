package chat

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// limits are the rate limits of this node.
type limits struct {
	ingress  []router.IngressFunc
	announce func(router.IngressContext) []router.AnnouncedLimit
	inFile   []limit.Limiter // those that a file configures
	metrics  *metrics.Metrics
}

func newLimits(cfg config, m *metrics.Metrics) *limits {
	l := &limits{metrics: m}
	if cfg.dryRunPolicy != nil {
		l.add(cfg, *cfg.dryRunPolicy, true)
	}
	enforced := l.add(cfg, cfg.policy, false)
	l.announce = ratelimit.Announce(enforced, &ratelimit.Options{Name: cfg.policy.Name, Key: cfg.key, Cost: cost})
	return l
}

// add enforces policy on this node or, with Redis, across all nodes. While Redis does not answer,
// each node enforces its share of the policy. In a dry run, the limit refuses no messages.
func (l *limits) add(cfg config, policy limit.Policy, dryRun bool) limit.Limiter {
	opts := ratelimit.Options{Name: policy.Name, Key: cfg.key, Cost: cost, Observe: l.metrics.Limit, DryRun: dryRun}
	if cfg.redis == nil {
		local := memory.NewLimiter(policy)
		l.metrics.Limiter(policy.Name, local)
		l.ingress = append(l.ingress, ratelimit.New(local, &opts))
		l.inFile = append(l.inFile, local)
		return local
	}
	share, err := perNode(policy, cfg.nodes)
	if err != nil {
		panic(err) // impossible: the flags have been validated
	}
	shared := sharedLimiter{redis.NewLimiter(cfg.redis, policy), memory.NewLimiter(share), cfg.nodes}
	l.metrics.Limiter(policy.Name, shared.fallback)
	opts.Fallback = shared.fallback
	l.ingress = append(l.ingress, ratelimit.New(shared.Limiter, &opts))
	l.inFile = append(l.inFile, shared)
	return shared.Limiter
}

// A sharedLimiter is a limiter on Redis, and the one that decides while Redis does not answer. Their
// policies change together.
type sharedLimiter struct {
	*redis.Limiter
	fallback *memory.Limiter
	nodes    int
}

// SetPolicy implements limit.PolicySetter.
func (s sharedLimiter) SetPolicy(policy limit.Policy) error {
	share, err := perNode(policy, s.nodes)
	if err != nil {
		return err
	}
	if err := s.Limiter.SetPolicy(policy); err != nil {
		return err
	}
	return s.fallback.SetPolicy(share)
}

// perNode returns the share of policy that one node admits by itself: a refill takes as many times
// longer as there are nodes, and the capacity is divided, but still holds the most expensive message.
func perNode(policy limit.Policy, nodes int) (limit.Policy, error) {
	per := policy.Per
	if per == 0 {
		per = time.Second
	}
	policy.Capacity = max(policy.Capacity/int64(nodes), min(policy.Capacity, searchCost))
	policy.Per = per * time.Duration(nodes)
	if err := policy.Validate(); err != nil {
		return policy, fmt.Errorf("the share of one of %d nodes: %w", nodes, err)
	}
	return policy, nil
}

// follow reads the limits from a file, and its changes until ctx is done: within ten seconds, or at
// once after a SIGHUP.
func (l *limits) follow(ctx context.Context, path string, hangups <-chan os.Signal) error {
	file, err := limitfile.Load(path, nil, l.inFile...)
	if err != nil {
		return err
	}
	l.metrics.LimitsFile(file)
	go file.Run(ctx)
	go func() {
		for {
			select {
			case <-hangups:
				_ = file.Reload() // the error is logged
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}
