package brokertest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func (n *historyNode) load(key string) (broker.Value, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	value, err := n.LoadValue(ctx, key)
	if err != nil {
		return value, fmt.Errorf("loading the value of %.40q: %w", key, err)
	}
	return value, nil
}

// replace stores a value. The error keeps its code.
func (n *historyNode) replace(key, data string, version uint64, lifetime time.Duration) (uint64, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	newVersion, err := n.StoreValue(ctx, key, []byte(data), version, lifetime)
	if err != nil {
		return newVersion, fmt.Errorf("storing a value of %.40q: %w", key, err)
	}
	if newVersion == 0 && lifetime > 0 {
		return 0, fmt.Errorf("a value of %.40q was stored with version 0", key)
	}
	return newVersion, nil
}

// create stores the first value of a key, for an hour.
func (n *historyNode) create(key, data string) (version uint64, err error) {
	return n.replace(key, data, 0, time.Hour)
}

// cannotReplace checks that the current value of a key has another version.
func (n *historyNode) cannotReplace(key string, version uint64, lifetime time.Duration) error {
	newVersion, err := n.replace(key, "other", version, lifetime)
	if errors.CodeOf(err) != errors.Aborted || newVersion != 0 {
		return fmt.Errorf("StoreValue with version %d and lifetime %v returned %d and the code %q, want 0 and ABORTED", version, lifetime, newVersion, errors.CodeOf(err))
	}
	return nil
}

func (n *historyNode) hasValue(key, data string, version uint64) error {
	value, err := n.load(key)
	if err != nil {
		return err
	}
	return compareValue(key, value, data, version)
}

func compareValue(key string, value broker.Value, data string, version uint64) error {
	if value.Version != version || string(value.Data) != data {
		return fmt.Errorf("the value of %.40q is %.40q with version %d, want %.40q with version %d", key, value.Data, value.Version, data, version)
	}
	return nil
}

func (n *historyNode) hasNoValue(key string) error {
	value, err := n.load(key)
	if err != nil {
		return err
	}
	if value.Version != 0 || value.Data != nil {
		return fmt.Errorf("the value of %.40q is %.40q with version %d, want the zero Value", key, value.Data, value.Version)
	}
	return nil
}

func valuesRoundTrip(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	prefix, everyByte := c.topic(), make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	keys := []string{
		prefix, prefix + " ", " " + prefix, prefix + ":", prefix + ":value", "{" + prefix + "}", "{}" + prefix, prefix + "*",
		prefix + "\x00", prefix + "\r\n", prefix + "\xff", prefix + "ключ", prefix + "%2F/", prefix + strings.Repeat("long", 1000), prefix + strings.Repeat("long", 1000) + "er",
	}
	versions := map[string]uint64{}
	data := func(i int) string { return strconv.Itoa(i) + string(everyByte) }
	for i, key := range keys {
		var err error
		if versions[key], err = nodes[0].create(key, data(i)); err != nil {
			return err
		}
	}
	for i, key := range keys {
		if err := nodes[1].hasValue(key, data(i), versions[key]); err != nil {
			return err
		}
	}
	for _, data := range []string{"", "0", string(bytes.Repeat(everyByte, 1<<10))} {
		version, err := nodes[0].replace(prefix, data, versions[prefix], time.Hour)
		if err = errors.Join(err, nodes[1].hasValue(prefix, data, version)); err != nil {
			return err
		}
		versions[prefix] = version
	}
	return nil
}

func absentValueIsZero(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key := c.topic()
	if err := errors.Join(nodes[0].hasNoValue(key), nodes[1].hasNoValue(key)); err != nil {
		return err
	}
	_, err := nodes[0].create(key, "data")
	return errors.Join(err, nodes[1].hasNoValue(c.topic()))
}

func wrongVersionChangesNothing(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key, absent := c.topic(), c.topic()
	first, err := nodes[0].create(key, "first")
	if err != nil {
		return err
	}
	current, err := nodes[1].replace(key, "second", first, time.Hour)
	if err != nil {
		return err
	}
	for _, lifetime := range []time.Duration{time.Hour, c.Age, 0, -time.Second} {
		for _, n := range nodes {
			err := errors.Join(
				n.cannotReplace(key, first, lifetime), n.cannotReplace(key, current+2, lifetime), n.cannotReplace(key, ^current, lifetime),
				n.cannotReplace(absent, 1, lifetime), n.cannotReplace(absent, current, lifetime),
				n.hasValue(key, "second", current), n.hasNoValue(absent),
			)
			if err != nil {
				return err
			}
		}
	}
	time.Sleep(2 * c.Age)
	return nodes[0].hasValue(key, "second", current) // the lifetime is unchanged, too
}

func versionZeroCreates(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key := c.topic()
	version, err := nodes[0].create(key, "data")
	if err != nil {
		return err
	}
	for _, n := range nodes {
		err := errors.Join(n.cannotReplace(key, 0, time.Hour), n.cannotReplace(key, 0, 0), n.hasValue(key, "data", version))
		if err != nil {
			return err
		}
	}
	return nil
}

func versionsAreNotRepeated(c HistoryCluster) error {
	const rounds = 30
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key, used := c.topic(), map[uint64]bool{}
	version := uint64(0)
	replace := func(i int, lifetime time.Duration) (err error) {
		if version, err = nodes[i%2].replace(key, "data", version, lifetime); err == nil && used[version] {
			err = fmt.Errorf("version %d was used twice", version)
		}
		used[version] = lifetime > 0
		return err
	}
	for i := range rounds {
		for _, lifetime := range []time.Duration{time.Hour, time.Hour, 0} {
			if err := replace(i, lifetime); err != nil {
				return err
			}
		}
	}
	for i := range 2 {
		if err := replace(i, c.Age); err != nil {
			return err
		}
		time.Sleep(2 * c.Age)
		version = 0
	}
	return nil
}

func concurrentWriters(c HistoryCluster) error {
	const rounds, writers = 20, 4
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	key, current := c.topic(), uint64(0)
	for round := range rounds {
		versions, errs := make([]uint64, writers*len(nodes)), make([]error, writers*len(nodes))
		var wg sync.WaitGroup
		for i := range versions {
			wg.Go(func() { versions[i], errs[i] = nodes[i%len(nodes)].replace(key, strconv.Itoa(i), current, time.Hour) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err != nil && errors.CodeOf(err) != errors.Aborted:
				return err
			case err == nil && winner >= 0:
				return fmt.Errorf("writers %d and %d have both replaced version %d", winner, i, current)
			case err == nil:
				winner = i
			}
		}
		if winner < 0 {
			return fmt.Errorf("none of %d writers has replaced version %d", writers, current)
		}
		current = versions[winner]
		if err := nodes[round%len(nodes)].hasValue(key, strconv.Itoa(winner), current); err != nil {
			return err
		}
	}
	return nil
}

func valuesExpire(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	short, shorter, longer := c.topic(), c.topic(), c.topic()
	first, err := nodes[0].replace(short, "data", 0, c.Age)
	if err != nil {
		return err
	}
	for key, lifetimes := range map[string][2]time.Duration{shorter: {time.Hour, c.Age}, longer: {10 * c.Age, time.Hour}} {
		version, err := nodes[0].replace(key, "data", 0, lifetimes[0])
		if err != nil {
			return err
		}
		if _, err = nodes[1].replace(key, "data", version, lifetimes[1]); err != nil {
			return err
		}
	}
	time.Sleep(12 * c.Age)
	for _, n := range nodes {
		if err := errors.Join(n.hasNoValue(short), n.hasNoValue(shorter), n.cannotReplace(short, first, time.Hour)); err != nil {
			return err
		}
		if value, err := n.load(longer); err != nil || string(value.Data) != "data" {
			return errors.Join(err, fmt.Errorf("the value is %q, want that of the latest lifetime", value.Data))
		}
	}
	version, err := nodes[1].create(short, "again")
	return errors.Join(err, nodes[0].hasValue(short, "again", version))
}

func valuesAreDeleted(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key := c.topic()
	for i, lifetime := range []time.Duration{0, -1, -time.Hour} {
		version, err := nodes[i%2].create(key, "data")
		if err != nil {
			return err
		}
		for _, version := range []uint64{version, 0} { // also a value that does not exist
			none, err := nodes[0].replace(key, "ignored", version, lifetime)
			if none != 0 {
				err = errors.Join(err, fmt.Errorf("deleting a value returned version %d, want 0", none))
			}
			if err = errors.Join(err, nodes[0].hasNoValue(key), nodes[1].hasNoValue(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

func valuesAreShared(c HistoryCluster) error {
	const rounds = 50
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	key, version := c.topic(), uint64(0)
	for i := range rounds {
		var err error
		if version, err = nodes[i%len(nodes)].replace(key, strconv.Itoa(i), version, time.Hour); err != nil {
			return err
		}
		for _, n := range nodes {
			if err := n.hasValue(key, strconv.Itoa(i), version); err != nil {
				return err
			}
		}
	}
	return nil
}

func valuesAreCopied(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	key, data := c.topic(), []byte("data")
	ctx, cancel := nodes[0].timeout()
	defer cancel()
	version, err := nodes[0].StoreValue(ctx, key, data, 0, time.Hour)
	if err != nil {
		return err
	}
	data[0] = 'x'
	for range 2 {
		for _, n := range nodes {
			value, err := n.load(key)
			if err = errors.Join(err, n.hasValue(key, "data", version)); err != nil {
				return err
			}
			clear(value.Data)
		}
	}
	return nil
}
