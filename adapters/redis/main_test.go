package redis_test

import (
	"testing"

	"github.com/penstock-go/penstock/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// redisAddr stands for the address of your Redis in the examples.
func redisAddr() string { return redistest.EmptyServer() }
