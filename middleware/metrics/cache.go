package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A cache holds the series of a metric that are in use. A lookup takes no lock and allocates
// nothing. Adding a series copies the map, which is rare: label values come from fixed sets.
type cache[K comparable, V any] struct {
	make func(K) V

	series atomic.Pointer[map[K]V] // a stored map never changes
	mu     sync.Mutex              // serializes add
}

func (c *cache[K, V]) get(key K) V {
	if found := c.series.Load(); found != nil {
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
	if found := c.series.Load(); found != nil {
		if v, ok := (*found)[key]; ok {
			return v
		}
		maps.Copy(all, *found)
	}
	v := c.make(key)
	all[key] = v
	c.series.Store(&all)
	return v
}
