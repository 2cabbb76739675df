package router

import (
	"fmt"
	"maps"
	"reflect"
)

// connValues holds what Conn.Set has stored. It is never modified: each Set stores a new one.
type connValues map[any]any

// Set stores a value for the lifetime of the connection: a cache, for example, or the number of
// messages that a handler has seen. It replaces the value that is stored for key; nil removes it.
// As with [context.WithValue], key must be comparable and should have an unexported type of the
// caller's package, so that packages do not collide; Set panics if it is nil or not comparable.
//
// The router neither copies nor locks the value: events of a connection are handled one at a time,
// but calls run concurrently with them. Each Set copies the keys, so a few of them are meant to be
// set once, when the connection opens. A connection without values allocates no memory for them.
func (c *Conn) Set(key, value any) {
	mustBeKey("Set", key)
	for {
		old := c.extra().values.Load()
		var values connValues
		if old != nil {
			values = maps.Clone(*old)
		}
		switch {
		case value == nil && len(values) == 0:
			return
		case value == nil:
			delete(values, key)
		case values == nil:
			values = connValues{key: value}
		default:
			values[key] = value
		}
		if c.ownExtra().values.CompareAndSwap(old, &values) {
			return
		}
	}
}

// Get returns the value that Set last stored for key, or nil. It panics if key is nil or not
// comparable.
func (c *Conn) Get(key any) any {
	mustBeKey("Get", key)
	values := c.extra().values.Load()
	if values == nil {
		return nil
	}
	return (*values)[key]
}

// mustBeKey panics if a key cannot be looked up.
func mustBeKey(method string, key any) {
	if key == nil || !reflect.TypeOf(key).Comparable() {
		panic(fmt.Sprintf("router: the key of Conn.%s is a %T; it must be comparable, such as a value of an empty struct type", method, key))
	}
}
