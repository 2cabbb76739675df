package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// queueValue queues the statement of a request. Each returns a row if the value has the version,
// except that of a load: a value that has expired is none.
func (s *store) queueValue(b *pgx.Batch, r *valueRequest) {
	const alive = " AND expires_at > clock_timestamp()"
	version, next := int64(r.version), int64(r.next) //nolint:gosec // 63 bits, and others match none
	lifetime := min(r.lifetime, maxAge).Milliseconds()
	if r.lifetime > 0 {
		lifetime = max(lifetime, 1)
	}
	switch {
	case r.isLoad:
		b.Queue(s.sql("SELECT version, data FROM penstock.value WHERE hash = $1"+alive), r.hash)
	case r.lifetime <= 0 && r.version == 0:
		b.Queue(s.sql("SELECT 0::bigint, true WHERE NOT EXISTS (SELECT FROM penstock.value WHERE hash = $1"+alive+")"), r.hash)
	case r.lifetime <= 0:
		b.Queue(s.sql("DELETE FROM penstock.value WHERE hash = $1 AND version = $2"+alive+" RETURNING 0::bigint, true"), r.hash, version)
	case r.version == 0:
		fits := r.patch == nil || r.patch.Offset == 0 && r.patch.Remove == 0
		b.Queue(s.sql(`INSERT INTO penstock.value AS v (hash, version, data, expires_at)
			SELECT $1, $2, $3, clock_timestamp() + $4 * interval '1 ms' WHERE $5
			ON CONFLICT (hash) DO UPDATE SET version = excluded.version, data = excluded.data, expires_at = excluded.expires_at
			WHERE v.expires_at <= clock_timestamp() RETURNING version, true`), r.hash, next, r.data, lifetime, fits)
	case r.patch == nil:
		b.Queue(s.sql(`UPDATE penstock.value SET version = $3, data = $4, expires_at = clock_timestamp() + $5 * interval '1 ms'
			WHERE hash = $1 AND version = $2`+alive+` RETURNING version, true`), r.hash, version, next, r.data, lifetime)
	default:
		b.Queue(s.sql(`UPDATE penstock.value SET
			version = CASE WHEN $5 >= 0 AND $6 >= 0 AND octet_length(data) >= $5 + $6 THEN $3 ELSE version END,
			data = CASE WHEN $5 >= 0 AND $6 >= 0 AND octet_length(data) >= $5 + $6
			  THEN substring(data FROM 1 FOR $5::int) || $4::bytea || substring(data FROM ($5 + $6)::int + 1) ELSE data END,
			expires_at = CASE WHEN $5 >= 0 AND $6 >= 0 AND octet_length(data) >= $5 + $6
			  THEN clock_timestamp() + $7 * interval '1 ms' ELSE expires_at END
			WHERE hash = $1 AND version = $2`+alive+` RETURNING version, version = $3`),
			r.hash, version, next, r.data, int64(r.patch.Offset), int64(r.patch.Remove), lifetime)
	}
}

// scanValue sets the result of a call.
func scanValue(c *valueCall, results pgx.BatchResults) error {
	r := &c.Request
	var version int64
	if r.isLoad {
		var data []byte
		err := results.QueryRow().Scan(&version, &data)
		if err == nil {
			c.Response = broker.Value{Version: uint64(version), Data: data} //nolint:gosec // 63 bits
		} else if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	}
	var isLongEnough bool
	switch err := results.QueryRow().Scan(&version, &isLongEnough); {
	case errors.Is(err, pgx.ErrNoRows):
		c.Err = errors.Errorf(errors.Aborted, "the value of %q has another version", r.key)
	case err != nil:
		return err
	case !isLongEnough:
		c.Err = errors.Errorf(errors.InvalidArgument, "the value of %q is shorter than the patch", r.key)
	default:
		c.Response.Version = uint64(version) //nolint:gosec // 63 bits
	}
	return nil
}
