package brokertest_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A storeCall is the arguments of StoreValue.
type storeCall struct {
	key      string
	data     []byte
	version  uint64
	lifetime time.Duration
}

func (o *override) storeValue(ctx context.Context, c storeCall) (uint64, error) {
	return o.HistoryNode.StoreValue(ctx, c.key, c.data, c.version, c.lifetime)
}

// A patchCall is the arguments of PatchValue.
type patchCall struct {
	key      string
	patch    broker.Patch
	version  uint64
	lifetime time.Duration
}

// changePatch replaces PatchValue by StoreValue with data that is derived from the current value.
func changePatch(change func(current broker.Value, c *patchCall) []byte) historyDefect {
	return historyDefect{node: func(o *override) {
		o.patch = func(ctx context.Context, c patchCall) (uint64, error) {
			current, _ := o.HistoryNode.LoadValue(ctx, c.key)
			return o.storeValue(ctx, storeCall{c.key, change(current, &c), c.version, c.lifetime})
		}
	}}
}

// applied returns the data that a patch describes, or data if it is wrong.
func applied(p broker.Patch, data []byte) []byte {
	if changed, ok := p.Apply(data); ok {
		return changed
	}
	return data
}

// changeStore replaces StoreValue.
func changeStore(store func(ctx context.Context, o *override, c storeCall) (uint64, error)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.store = func(ctx context.Context, c storeCall) (uint64, error) { return store(ctx, o, c) }
	}}
}

// changeStoreCall changes the arguments of StoreValue.
func changeStoreCall(change func(*storeCall)) historyDefect {
	return changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
		change(&c)
		return o.storeValue(ctx, c)
	})
}

// changeLoad changes the results of LoadValue.
func changeLoad(change func(key string, v *broker.Value)) historyDefect {
	return historyDefect{node: func(o *override) {
		o.load = func(ctx context.Context, key string) (broker.Value, error) {
			v, err := o.HistoryNode.LoadValue(ctx, key)
			if err == nil {
				change(key, &v)
			}
			return v, err
		}
	}}
}

// changeKey changes the keys of values.
func changeKey(change func(string) string) historyDefect {
	return historyDefect{node: func(o *override) {
		o.load = func(ctx context.Context, key string) (broker.Value, error) {
			return o.HistoryNode.LoadValue(ctx, change(key))
		}
		o.store = func(ctx context.Context, c storeCall) (uint64, error) {
			c.key = change(c.key)
			return o.storeValue(ctx, c)
		}
	}}
}

// replaceCurrent stores a value whatever version the current one has.
func replaceCurrent(ctx context.Context, o *override, c storeCall) (uint64, error) {
	v, _ := o.HistoryNode.LoadValue(ctx, c.key)
	c.version = v.Version
	return o.storeValue(ctx, c)
}

// countVersions makes versions count from 1 for each key that has no value.
func countVersions() historyDefect {
	var mu sync.Mutex
	counts := map[string]map[uint64]uint64{} // by key: the count of a version of the store
	return changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		current, _ := o.HistoryNode.LoadValue(ctx, c.key)
		if current.Version == 0 {
			counts[c.key] = map[uint64]uint64{}
		}
		if counts[c.key][current.Version] != c.version {
			return 0, errors.Errorf(errors.Aborted, "another version")
		}
		count := c.version + 1
		c.version = current.Version
		version, err := o.storeValue(ctx, c)
		if counts[c.key][version] = count; version == 0 {
			return 0, err
		}
		return count, err
	})
}

func brokenValues() map[string]brokenHistory {
	first := map[string]time.Duration{} // lifetimes by key
	return map[string]brokenHistory{
		"truncates the keys of values":      {changeKey(func(key string) string { return key[:min(len(key), 100)] }), "value round trip"},
		"trims the keys of values":          {changeKey(strings.TrimSpace), "value round trip"},
		"replaces bytes that are not UTF-8": {changeStoreCall(func(c *storeCall) { c.data = []byte(strings.ToValidUTF8(string(c.data), "?")) }), "value round trip"},
		"truncates values":                  {changeStoreCall(func(c *storeCall) { c.data = c.data[:min(len(c.data), 1<<16)] }), "value round trip"},
		"returns an empty value for none": {changeLoad(func(_ string, v *broker.Value) {
			if v.Version == 0 {
				v.Data = []byte{}
			}
		}), "absent value"},
		"replaces values instead of patching them": {changePatch(func(_ broker.Value, c *patchCall) []byte { return c.patch.Data }), "value is patched"},
		"patches from the beginning":               {changePatch(func(v broker.Value, c *patchCall) []byte { c.patch.Offset = 0; return applied(c.patch, v.Data) }), "value is patched"},
		"patches remove nothing":                   {changePatch(func(v broker.Value, c *patchCall) []byte { c.patch.Remove = 0; return applied(c.patch, v.Data) }), "value is patched"},
		"drops what follows a patch": {changePatch(func(v broker.Value, c *patchCall) []byte {
			return applied(c.patch, v.Data)[:min(c.patch.Offset+len(c.patch.Data), len(v.Data))]
		}), "value is patched"},
		"keeps the memory of a patch": {historyDefect{node: func(o *override) {
			o.patch = func(ctx context.Context, c patchCall) (uint64, error) {
				return o.HistoryNode.PatchValue(ctx, c.key, broker.Patch{Offset: c.patch.Offset, Remove: c.patch.Remove, Data: make([]byte, len(c.patch.Data))}, c.version, c.lifetime)
			}
		}}, "value is patched"},
		"patches any version":             {changePatch(func(v broker.Value, c *patchCall) []byte { c.version = v.Version; return applied(c.patch, v.Data) }), "wrong patch"},
		"accepts patches for longer data": {changePatch(func(v broker.Value, c *patchCall) []byte { return applied(c.patch, v.Data) }), "wrong patch"},
		"replaces any version":            {changeStore(replaceCurrent), "value of another version"},
		"confuses keys":                   {changeKey(func(string) string { return "key" }), "value of another version"},
		"deletes any version":             {deletesAnyVersion(), "value of another version"},
		"renews without version": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			version, err := o.storeValue(ctx, c)
			if v, _ := o.HistoryNode.LoadValue(ctx, c.key); err != nil && v.Version != 0 && c.lifetime > 0 {
				_, _ = o.storeValue(ctx, storeCall{c.key, v.Data, v.Version, c.lifetime})
			}
			return version, err
		}), "value of another version"},
		"replaces with version 0": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			if c.version == 0 {
				return replaceCurrent(ctx, o, c)
			}
			return o.storeValue(ctx, c)
		}), "value without a version"},
		"counts versions from 1": {countVersions(), "versions"},
		"compares before it stores": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			if v, _ := o.HistoryNode.LoadValue(ctx, c.key); v.Version != c.version {
				return 0, errors.Errorf(errors.Aborted, "another version")
			}
			time.Sleep(time.Millisecond) // between the comparison and the change
			return replaceCurrent(ctx, o, c)
		}), "concurrent writers"},
		"never expires values": {changeStoreCall(func(c *storeCall) {
			if c.lifetime > 0 {
				c.lifetime = 100 * time.Hour
			}
		}), "value expires"},
		"keeps the first lifetime": {historyDefect{node: func(o *override) {
			o.store = func(ctx context.Context, c storeCall) (uint64, error) {
				if c.version == 0 {
					first[c.key] = c.lifetime
				} else if c.lifetime > 0 {
					c.lifetime = first[c.key]
				}
				return o.storeValue(ctx, c)
			}
		}}, "value expires"},
		"does not delete": {changeStoreCall(func(c *storeCall) {
			if c.lifetime <= 0 {
				c.lifetime = time.Hour
			}
		}), "value is deleted"},
		"ignores negative lifetimes": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			if c.lifetime < 0 {
				return 0, nil
			}
			return o.storeValue(ctx, c)
		}), "value is deleted"},
		"caches values": {historyDefect{node: func(o *override) {
			cached := map[string]broker.Value{}
			o.load = func(ctx context.Context, key string) (broker.Value, error) {
				if v, ok := cached[key]; ok {
					return v, nil
				}
				v, err := o.HistoryNode.LoadValue(ctx, key)
				cached[key] = v
				return v, err
			}
		}}, "values are shared"},
		"shares loaded data": {historyDefect{node: func(o *override) {
			loaded := map[uint64][]byte{}
			changeLoad(func(_ string, v *broker.Value) {
				if data, ok := loaded[v.Version]; ok {
					v.Data = data
				}
				loaded[v.Version] = v.Data
			}).node(o)
		}}, "values are copied"},
		"keeps stored data": {historyDefect{node: func(o *override) {
			stored := map[string][]byte{}
			changeLoad(func(key string, v *broker.Value) {
				if data, ok := stored[key]; ok {
					v.Data = append([]byte(nil), data...)
				}
			}).node(o)
			o.store = func(ctx context.Context, c storeCall) (uint64, error) {
				stored[c.key] = c.data
				return o.storeValue(ctx, c)
			}
		}}, "values are copied"},
	}
}

// deletesAnyVersion ignores the version of a deletion.
func deletesAnyVersion() historyDefect {
	return changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
		if c.lifetime <= 0 {
			return replaceCurrent(ctx, o, c)
		}
		return o.storeValue(ctx, c)
	})
}

func brokenValueOutcomes() map[string]brokenHistory {
	return map[string]brokenHistory{
		"loads in spite of the context": {historyDefect{node: func(o *override) {
			o.load = func(_ context.Context, key string) (broker.Value, error) {
				return o.HistoryNode.LoadValue(context.Background(), key)
			}
		}}, "done context"},
		"stores a value in spite of the context": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			version, err := o.storeValue(context.WithoutCancel(ctx), c)
			return version, errors.Join(err, ctx.Err())
		}), "done context"},
		"loads after Close": {historyDefect{node: func(o *override) {
			o.load = func(context.Context, string) (broker.Value, error) { return broker.Value{}, nil }
		}}, "closed history node"},
		"hides the unknown outcome of a value": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			version, err := o.storeValue(ctx, c)
			if errors.CodeOf(err) == errors.OutcomeUnknown {
				err = errors.Errorf(errors.Unavailable, "connection lost")
			}
			return version, err
		}), "value outcome is true"},
		"stores a value again": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			version, err := o.storeValue(ctx, c)
			for range 5 {
				if errors.CodeOf(err) == errors.OutcomeUnknown {
					version, err = o.storeValue(ctx, c) // the value may have the new version
				}
			}
			return version, err
		}), "value outcome is true"},
		"hides the error of a value": {changeStore(func(ctx context.Context, o *override, c storeCall) (uint64, error) {
			version, err := o.storeValue(ctx, c)
			if errors.CodeOf(err) == errors.OutcomeUnknown {
				return c.version + 2, nil
			}
			return version, err
		}), "value outcome is true"},
	}
}
