-- The names of topics, keys and packets are bytea, because Go strings may contain NUL and invalid
-- UTF-8. What may be long is found by its SHA-256, because an index entry is limited to 2,700 bytes.

-- lineage names the data that this server has. Its newest row belongs to the server that writes now.
CREATE TABLE penstock.lineage (
  no int PRIMARY KEY,
  epoch text NOT NULL,            -- of topics that continue from an older lineage
  identity text NOT NULL,         -- system identifier, timeline and OID of the table topic
  began timestamptz NOT NULL DEFAULT now()
);

-- shard has the first epoch of topics without a row, which ends when topics are forgotten.
CREATE TABLE penstock.shard (
  no smallint PRIMARY KEY,
  lineage int NOT NULL,
  first text NOT NULL,
  previous text,
  forgot_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO penstock.lineage (no, epoch, identity) VALUES (0, gen_random_uuid()::text, '');
INSERT INTO penstock.shard (no, lineage, first) SELECT n, 0, gen_random_uuid()::text FROM generate_series(0, 3) n;

CREATE TABLE penstock.topic (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hash bytea UNIQUE NOT NULL,
  name bytea NOT NULL,
  shard smallint NOT NULL,
  epoch text NOT NULL,
  lineage int NOT NULL,
  top bigint NOT NULL,            -- the last offset
  total bigint NOT NULL,          -- bytes of all packets of the topic
  floor bigint NOT NULL,          -- offsets up to it are beyond Retention.Messages
  pruned bigint NOT NULL,         -- packets that begin before this total are beyond Retention.Bytes
  cleaned bigint NOT NULL,        -- what pruned was when rows were last deleted for it
  slots int NOT NULL,             -- rows of the ring in history, a power of two
  previous_epoch text,
  previous_top bigint,
  messages int NOT NULL,          -- the last Retention
  age_ms bigint NOT NULL,
  bytes bigint NOT NULL,
  fence bigint NOT NULL,          -- the 64 bits of an unsigned number
  closed bool NOT NULL,
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);         -- HOT updates: no column that changes has an index

-- forgotten has the topics that were deleted since their first epoch ended.
CREATE TABLE penstock.forgotten (
  hash bytea PRIMARY KEY,
  shard smallint NOT NULL
);

-- outbox has what was published in transactions of the application until a sequencing transaction
-- moves it to history. It is a queue, not a log: no reader has a cursor in it.
CREATE TABLE penstock.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY,   -- with CACHE 1, or the order of a publisher is lost
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  at timestamptz NOT NULL DEFAULT now(),
  shard smallint NOT NULL,
  topic bytea NOT NULL,
  packet bytea NOT NULL,
  state_key bytea,
  removed bool NOT NULL DEFAULT false,
  idempotency_key bytea,
  messages int,                   -- a Retention; null is that of the topic
  age_ms bigint,
  bytes bigint,
  fence bigint NOT NULL DEFAULT 0,
  last bool NOT NULL DEFAULT false,
  epoch text NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX outbox_shard_xid ON penstock.outbox (shard, xid);

-- history is a ring of rows per topic: the publication with offset n is in slot n % topic.slots.
CREATE TABLE penstock.history (
  topic_id bigint NOT NULL,
  slot int NOT NULL,
  off bigint NOT NULL,
  epoch text NOT NULL,
  at timestamptz NOT NULL,
  total bigint NOT NULL,          -- topic.total including this packet
  packet bytea NOT NULL,
  state_key bytea,
  removed bool NOT NULL,
  PRIMARY KEY (topic_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE penstock.state (
  topic_id bigint NOT NULL,
  hash bytea NOT NULL,
  key bytea NOT NULL,
  off bigint NOT NULL,
  epoch text NOT NULL,
  at timestamptz NOT NULL,
  packet bytea NOT NULL,
  PRIMARY KEY (topic_id, hash)
);

CREATE TABLE penstock.idempotency (
  topic_id bigint NOT NULL,
  hash bytea NOT NULL,
  epoch text NOT NULL,
  off bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (topic_id, hash)
);
CREATE INDEX idempotency_expires_at ON penstock.idempotency (expires_at);

CREATE TABLE penstock.value (
  hash bytea PRIMARY KEY,
  version bigint NOT NULL,
  data bytea NOT NULL,
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX value_expires_at ON penstock.value (expires_at);

-- packet has what does not fit into a notification, for a minute.
CREATE UNLOGGED TABLE penstock.packet (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  body bytea NOT NULL
);

-- uvarint encodes a number as Go's encoding/binary does.
CREATE FUNCTION penstock.uvarint(n bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  b bytea := '';
BEGIN
  WHILE n >= 128 LOOP
    b := b || set_byte('\x00'::bytea, 0, ((n & 127) | 128)::int);
    n := n >> 7;
  END LOOP;
  RETURN b || set_byte('\x00'::bytea, 0, n::int);
END $$;

-- publish publishes a message in the current transaction, for programs in other languages than Go: a
-- message in JSON, as docs/protocol.md describes it. A Retention that is null is the last one of the
-- topic. It refuses what a router refuses: names that no client can subscribe to or understand.
CREATE FUNCTION penstock.publish(topic text, type text, payload jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
  state_key text DEFAULT NULL, removed bool DEFAULT false, messages int DEFAULT NULL, age interval DEFAULT NULL, bytes bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  micros bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  name bytea := convert_to(topic, 'UTF8');
  type_bytes int := octet_length(convert_to(type, 'UTF8'));
  key bytea := CASE WHEN state_key IS NULL THEN '' ELSE convert_to(type, 'UTF8') || '\x00' || convert_to(state_key, 'UTF8') END;
  message text := '{"type":' || to_json(type)::text || ',"meta":{"timestamp":' || micros / 1000 || '}'
    || CASE WHEN payload IS NULL THEN '' ELSE ',"payload":' || payload::text END || '}';
BEGIN
  IF topic IS NULL OR octet_length(name) NOT BETWEEN 1 AND 256 OR topic ~ '[\u0001-\u001F\u007F-\u009F]' THEN
    RAISE EXCEPTION 'a topic''s name must have 1 to 256 bytes without control characters, unlike %', quote_nullable(left(topic, 300))
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF type IS NULL OR type_bytes NOT BETWEEN 1 AND 128 THEN
    RAISE EXCEPTION 'a type must have 1 to 128 bytes, unlike %', quote_nullable(left(type, 150)) USING ERRCODE = 'invalid_parameter_value';
  ELSIF type ~ '^(\$|__)' OR type IN ('ERROR', 'RPC_ERROR') THEN
    RAISE EXCEPTION 'the type % is reserved for the protocol', quote_literal(type) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO penstock.outbox (shard, topic, packet, state_key, removed, idempotency_key, messages, age_ms, bytes) VALUES (
    get_byte(sha256(name), 0) % 4, name,
    '\x01'::bytea || penstock.uvarint(micros) || penstock.uvarint(length(key)) || key || convert_to(message, 'UTF8'),
    convert_to('=' || state_key, 'UTF8'), removed AND state_key IS NOT NULL, convert_to(nullif(idempotency_key, ''), 'UTF8'),
    messages, (extract(epoch FROM age) * 1000)::bigint, CASE WHEN messages IS NULL THEN NULL ELSE coalesce(bytes, 0) END);
END $$;

-- restored begins a new epoch of every topic, after the data of the server was restored from a copy.
-- Run it before nodes connect: nothing in the server shows that its data is older than what clients
-- have received, and positions would be used twice.
CREATE FUNCTION penstock.restored() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('penstock.topic'::regclass::oid::bigint);
  INSERT INTO penstock.lineage (no, epoch, identity)
    SELECT no + 1, gen_random_uuid()::text, identity FROM penstock.lineage ORDER BY no DESC LIMIT 1;
END $$;
