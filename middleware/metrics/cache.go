package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A cache keeps the series of a metric that were used. A lookup takes no lock and allocates
// nothing; adding a series copies the map.
type cache[K comparable, V any] struct {
	make func(K) V

	found atomic.Pointer[map[K]V]
	mu    sync.Mutex
}

func (c *cache[K, V]) get(key K) V {
	if found := c.found.Load(); found != nil {
		if v, ok := (*found)[key]; ok {
			return v
		}
	}
	return c.add(key)
}

func (c *cache[K, V]) add(key K) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[K]V{}
	if found := c.found.Load(); found != nil {
		if v, ok := (*found)[key]; ok {
			return v
		}
		maps.Copy(all, *found)
	}
	v := c.make(key)
	all[key] = v
	c.found.Store(&all)
	return v
}
