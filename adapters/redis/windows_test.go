package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/outboundtest"
)

func TestWindowsKeepTheContract(t *testing.T) {
	for name, client := range map[string]goredis.UniversalClient{
		"one node": redistest.Any(t),
		"cluster":  redistest.StartCluster(t).Client(t),
	} {
		for _, c := range outboundtest.Cases() {
			t.Run(name+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, func(o *outbound.WindowsOptions) outbound.Windows {
					return redis.NewWindows(client, "{"+redistest.Prefix(t)+"}", o)
				})
			})
		}
	}
}
