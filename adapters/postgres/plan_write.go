package postgres

import (
	"github.com/jackc/pgx/v5"
)

// queueWrites queues the statements that store the plan.
func (p *plan) queueWrites(b *pgx.Batch) {
	if len(p.order) == 0 {
		return
	}
	p.queueTopicWrites(b)
	for _, t := range p.order {
		if t.exists && t.slots != t.oldSlots {
			b.Queue(p.store.sql(resizeSQL), hashOf(t.name), t.slots, int64(t.position.Offset)-int64(t.slots)) //nolint:gosec // offsets are below 1<<53
		}
		if t.isCleaned {
			b.Queue(p.store.sql(`DELETE FROM penstock.history h USING penstock.topic t
				WHERE t.hash = $1 AND h.topic_id = t.id AND h.total - octet_length(h.packet) < $2`), hashOf(t.name), t.pruned)
		}
	}
	p.queueHistory(b)
	p.queueStates(b)
	p.queueKeys(b)
}

// resizeSQL stores the ring of a topic again, with another number of slots. The sort reads all rows
// before the first one is inserted, whose slot may be that of another one.
const resizeSQL = `
WITH moved AS (
  DELETE FROM penstock.history h USING penstock.topic t WHERE t.hash = $1 AND h.topic_id = t.id RETURNING h.*
)
INSERT INTO penstock.history (topic_id, slot, off, epoch, at, total, packet, state_key, removed)
SELECT topic_id, off % $2, off, epoch, at, total, packet, state_key, removed FROM (SELECT * FROM moved WHERE off > $3 ORDER BY off) m`

func (p *plan) queueTopicWrites(b *pgx.Batch) {
	var hashes, names [][]byte
	var epochs, previousEpochs []string
	var tops, totals, floors, pruned, cleaned, previousTops, ages, bytes, lifetimes []int64
	var slots, messages []int32
	var fences []int64
	var closed []bool
	for _, t := range p.order {
		age := ageOf(t.retention)
		hashes, names = append(hashes, hashOf(t.name)), append(names, []byte(t.name))
		epochs, tops = append(epochs, t.position.Epoch), append(tops, int64(t.position.Offset))                                 //nolint:gosec // below 1<<53
		previousEpochs, previousTops = append(previousEpochs, t.previous.Epoch), append(previousTops, int64(t.previous.Offset)) //nolint:gosec // below 1<<53
		totals, floors, pruned, cleaned = append(totals, t.total), append(floors, t.floor), append(pruned, t.pruned), append(cleaned, t.cleaned)
		slots, messages = append(slots, int32(t.slots)), append(messages, int32(t.retention.Messages)) //nolint:gosec // at most maxSlots
		ages, bytes = append(ages, age.Milliseconds()), append(bytes, t.retention.Bytes)
		fences, closed = append(fences, int64(t.fence)), append(closed, t.closed) //nolint:gosec // the bits
		lifetimes = append(lifetimes, p.store.lifetime(age).Milliseconds())
	}
	b.Queue(p.store.sql(`
INSERT INTO penstock.topic (hash, name, shard, lineage, epoch, top, total, floor, pruned, cleaned, slots, previous_epoch, previous_top,
  messages, age_ms, bytes, expires_at, fence, closed)
SELECT u.hash, u.name, $1, $2, u.epoch, u.top, u.total, u.floor, u.pruned, u.cleaned, u.slots, nullif(u.previous_epoch, ''), u.previous_top,
  u.messages, u.age_ms, u.bytes, clock_timestamp() + u.lifetime * interval '1 ms', u.fence, u.closed
FROM unnest($3::bytea[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::int[],
  $12::text[], $13::bigint[], $14::int[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bool[])
  AS u (hash, name, epoch, top, total, floor, pruned, cleaned, slots, previous_epoch, previous_top, messages, age_ms, bytes, lifetime, fence, closed)
ON CONFLICT (hash) DO UPDATE SET lineage = excluded.lineage, epoch = excluded.epoch, top = excluded.top, total = excluded.total,
  floor = excluded.floor, pruned = excluded.pruned, cleaned = excluded.cleaned, slots = excluded.slots,
  previous_epoch = excluded.previous_epoch, previous_top = excluded.previous_top, messages = excluded.messages,
  age_ms = excluded.age_ms, bytes = excluded.bytes, expires_at = excluded.expires_at,
  fence = excluded.fence, closed = excluded.closed`),
		p.shard, p.facts.lineage.no, hashes, names, epochs, tops, totals, floors, pruned, cleaned, slots,
		previousEpochs, previousTops, messages, ages, bytes, lifetimes, fences, closed)
}

// queueHistory stores publications in the slots of their topics. None has two of the same slot.
func (p *plan) queueHistory(b *pgx.Batch) {
	var hashes, packets, stateKeys [][]byte
	var epochs []string
	var offsets, totals []int64
	var removed []bool
	for _, t := range p.order {
		hash := hashOf(t.name)
		for _, r := range t.kept() {
			hashes, packets, stateKeys = append(hashes, hash), append(packets, r.Packet), append(stateKeys, keyOrNull(r.StateKey))
			epochs, offsets, totals = append(epochs, r.Position.Epoch), append(offsets, int64(r.Position.Offset)), append(totals, r.total) //nolint:gosec // below 1<<53
			removed = append(removed, r.Removed)
		}
	}
	if len(hashes) == 0 {
		return
	}
	b.Queue(p.store.sql(`
INSERT INTO penstock.history (topic_id, slot, off, epoch, at, total, packet, state_key, removed)
SELECT t.id, u.off % t.slots, u.off, u.epoch, $1, u.total, u.packet, u.state_key, u.removed
FROM unnest($2::bytea[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bool[])
  AS u (hash, off, epoch, total, packet, state_key, removed) JOIN penstock.topic t ON t.hash = u.hash
ON CONFLICT (topic_id, slot) DO UPDATE SET off = excluded.off, epoch = excluded.epoch, at = excluded.at, total = excluded.total,
  packet = excluded.packet, state_key = excluded.state_key, removed = excluded.removed`),
		p.facts.now, hashes, offsets, epochs, totals, packets, stateKeys, removed)
}

// keyOrNull returns a state key as it is stored.
func keyOrNull(key string) []byte {
	if key == "" {
		return nil
	}
	return []byte(key)
}

// queueStates stores the last publication of each state key.
func (p *plan) queueStates(b *pgx.Batch) {
	var topics, hashes, keys, packets, removedTopics, removed [][]byte
	var epochs []string
	var offsets []int64
	for _, t := range p.order {
		topic := hashOf(t.name)
		for key, i := range t.states {
			r := &t.rows[i]
			if r.Removed {
				removedTopics, removed = append(removedTopics, topic), append(removed, hashOf(key))
				continue
			}
			topics, hashes, keys, packets = append(topics, topic), append(hashes, hashOf(key)), append(keys, []byte(key)), append(packets, r.Packet)
			epochs, offsets = append(epochs, r.Position.Epoch), append(offsets, int64(r.Position.Offset)) //nolint:gosec // below 1<<53
		}
	}
	if len(topics) > 0 {
		b.Queue(p.store.sql(`
INSERT INTO penstock.state (topic_id, hash, key, off, epoch, at, packet)
SELECT t.id, u.hash, u.key, u.off, u.epoch, $1, u.packet
FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::text[], $7::bytea[]) AS u (topic, hash, key, off, epoch, packet)
  JOIN penstock.topic t ON t.hash = u.topic
ON CONFLICT (topic_id, hash) DO UPDATE SET off = excluded.off, epoch = excluded.epoch, at = excluded.at, packet = excluded.packet`),
			p.facts.now, topics, hashes, keys, offsets, epochs, packets)
	}
	if len(removed) > 0 {
		b.Queue(p.store.sql(`DELETE FROM penstock.state s USING unnest($1::bytea[], $2::bytea[]) AS u (topic, hash), penstock.topic t
			WHERE t.hash = u.topic AND s.topic_id = t.id AND s.hash = u.hash`), removedTopics, removed)
	}
}

// queueKeys stores the idempotency keys of this transaction.
func (p *plan) queueKeys(b *pgx.Batch) {
	var topics, hashes [][]byte
	var epochs []string
	var offsets []int64
	for key, known := range p.keys {
		if known.isNew {
			topics, hashes = append(topics, hashOf(key.topic)), append(hashes, []byte(key.key))
			epochs, offsets = append(epochs, known.position.Epoch), append(offsets, int64(known.position.Offset)) //nolint:gosec // below 1<<53
		}
	}
	if len(topics) == 0 {
		return
	}
	b.Queue(p.store.sql(`
INSERT INTO penstock.idempotency (topic_id, hash, epoch, off, expires_at)
SELECT t.id, u.hash, u.epoch, u.off, clock_timestamp() + $1 * interval '1 ms'
FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::bigint[]) AS u (topic, hash, epoch, off) JOIN penstock.topic t ON t.hash = u.topic
ON CONFLICT (topic_id, hash) DO UPDATE SET epoch = excluded.epoch, off = excluded.off, expires_at = excluded.expires_at`),
		p.store.keyTime.Milliseconds(), topics, hashes, epochs, offsets)
}
