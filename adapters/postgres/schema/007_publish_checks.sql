-- publish publishes a message in the current transaction, for programs in other languages than Go: a
-- message in JSON, as docs/protocol.md describes it. A Retention that is null is the last one of the
-- topic. It refuses what a router refuses: names that no client can subscribe to or understand.
CREATE OR REPLACE FUNCTION penstock.publish(topic text, type text, payload jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL,
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
