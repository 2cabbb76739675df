package redis

import (
	"context"
	"log/slog"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
)

const policyTimeout = 5 * time.Second

// startPolicyCheck logs a warning if Redis may evict keys of histories. If Redis does not respond, the
// next use of a history checks it again.
func (s *historyNode) startPolicyCheck() {
	if s.policyChecked.Load() || s.policyChecked.Swap(true) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), policyTimeout)
		defer cancel()
		switch err := checkPolicy(ctx, s.client); errors.CodeOf(err) {
		case "":
		case errors.FailedPrecondition:
			slog.Default().WarnContext(ctx, err.Error())
		default:
			s.policyChecked.Store(false)
		}
	}()
}

// checkPolicy returns an error if a master has another maxmemory-policy than noeviction.
func checkPolicy(ctx context.Context, client goredis.UniversalClient) error {
	if c, ok := client.(*goredis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error { return checkPolicyOf(ctx, master) })
	}
	return checkPolicyOf(ctx, client)
}

func checkPolicyOf(ctx context.Context, client goredis.UniversalClient) error {
	policy, err := evictionPolicy(ctx, client)
	if err == nil && policy != "noeviction" {
		return errors.Errorf(errors.FailedPrecondition,
			"redis: the maxmemory-policy is %s; it must be noeviction, so that histories are not evicted", policy)
	}
	if _, isReply := errors.AsType[goredis.Error](err); isReply {
		return &errors.Error{Code: errors.FailedPrecondition, Err: err, Message: "redis: the maxmemory-policy is not readable; it must be noeviction, so that histories are not evicted"}
	}
	return err
}

// evictionPolicy returns the maxmemory-policy. Managed services forbid CONFIG, but not INFO.
func evictionPolicy(ctx context.Context, client goredis.UniversalClient) (string, error) {
	if config, err := client.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil && config["maxmemory-policy"] != "" {
		return config["maxmemory-policy"], nil
	}
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok {
			return policy, nil
		}
	}
	return "", errors.New("INFO memory has no maxmemory_policy")
}
