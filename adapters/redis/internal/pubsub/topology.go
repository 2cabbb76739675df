package pubsub

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/rules"
)

// Partitions is the number of partitions on a Cluster, each in a slot of its own. All nodes
// must use the same number, since it determines the channel of a topic.
const Partitions = 512

// SlotCount is the number of slots of a Cluster.
const SlotCount = 16384

// partitionTags returns a hash tag for each partition. The slots of the partitions have about the
// same distance, so that masters have partitions in proportion to their slots.
func partitionTags() []string {
	tags := make([]string, Partitions)
	for n, found := 0, 0; found < len(tags); n++ {
		tag := strconv.Itoa(n)
		partition := int(SlotOf(tag)) * len(tags) / SlotCount
		if tags[partition] == "" {
			tags[partition] = tag
			found++
		}
	}
	return tags
}

// SlotOf returns the slot of a hash tag: its CRC-16/XMODEM modulo the number of slots (Redis
// Cluster Specification, "Key distribution model").
func SlotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % SlotCount
}

const (
	topologyInterval = 250 * time.Millisecond // of comparing the topology that the client knows
	reloadInterval   = 200 * time.Millisecond // at least, between requests to reload it
)

// ReloadTopology requests that the client loads the topology of a Cluster. Otherwise, the client
// does so once a minute and when a server redirects it.
func (l *Link) ReloadTopology() {
	select {
	case l.reload <- struct{}{}: // blocks for ever, and is therefore skipped, without a Cluster
	default:
	}
}

// followTopology assigns the partitions to receivers until ctx ends.
func (l *Link) followTopology(ctx context.Context) {
	ticker := time.NewTicker(topologyInterval)
	defer ticker.Stop()
	for {
		l.assignPartitions(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.loaded:
		}
	}
}

// loadTopology lets the client load the topology when that is requested, until ctx ends. Unlike
// ClusterClient.ReloadState, ForEachMaster returns when that is done.
func (l *Link) loadTopology(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.reload:
		}
		begun := time.Now()
		_ = l.engine.Cluster.ForEachMaster(ctx, func(context.Context, *goredis.Client) error { return nil })
		select {
		case l.loaded <- struct{}{}:
		default:
		}
		_ = rules.Sleep(ctx, reloadInterval-time.Since(begun))
	}
}

// assignPartitions gives every partition to the receiver of its master.
func (l *Link) assignPartitions(ctx context.Context) {
	masters := make([]*goredis.Client, len(l.engine.Tags))
	paths := make([]string, len(masters))
	for i, tag := range l.engine.Tags {
		master, err := l.engine.Cluster.MasterForKey(ctx, tag)
		if err != nil {
			return // keep what is known
		}
		masters[i], paths[i] = master, master.Options().Addr
	}
	l.paths.Store(&paths)
	l.reporting.Lock()
	defer l.reporting.Unlock()
	moved := l.moveTo(masters)
	if moved == nil {
		return
	}
	l.interruptLocked(func(c *channelState) bool { return moved[c.Partition] })
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, state := range l.channels {
		if r := l.partitions[state.Partition]; moved[state.Partition] && r.current != nil {
			r.changed = append(r.changed, name)
		}
	}
	for r := range l.receivers { // if it has no connection, the next one will subscribe to everything
		r.changes.Add(r.applyChanges)
	}
}

// moveTo assigns the partitions to receivers of these masters, and returns which have another
// receiver than before, or nil. A receiver without partitions ends.
func (l *Link) moveTo(masters []*goredis.Client) (moved []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byMaster := map[goredis.UniversalClient]*receiver{}
	for r := range l.receivers {
		byMaster[r.client] = r
	}
	used := map[*receiver]bool{}
	for i, master := range masters {
		r := byMaster[master]
		if r == nil {
			r = l.newReceiverLocked(master)
			byMaster[master] = r
		}
		used[r] = true
		if l.partitions[i] != r {
			if moved == nil {
				moved = make([]bool, len(masters))
			}
			moved[i], l.partitions[i] = true, r
		}
	}
	for r := range l.receivers {
		if !used[r] {
			delete(l.receivers, r)
			r.cancel()
		}
	}
	return moved
}

// movedLocked handles the end of subscriptions by the server, because their slot moves. The
// partition is without a receiver until the client knows its new master. l.reporting must be held.
func (l *Link) movedLocked(partition int) {
	l.interruptLocked(func(c *channelState) bool { return c.Partition == partition })
	l.mu.Lock()
	r := l.partitions[partition]
	l.partitions[partition] = nil
	l.mu.Unlock()
	if r != nil {
		r.changes.Add(r.applyChanges) // it may need another probe
	}
	l.ReloadTopology()
}
