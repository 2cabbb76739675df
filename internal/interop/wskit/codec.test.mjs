// Binary messages with CBOR payloads, with a plain WebSocket.

import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, encode } from "cborg";

import { Raw } from "./raw.mjs";

const isProtocol = (type) => type.endsWith("ERROR") || (type.startsWith("$ws:") && type !== "$ws:rpc-progress");

// A RawCBOR sends and receives binary messages: the length of the head, the head as JSON, and the
// payload. The payloads of the protocol's own messages are JSON, those of the application CBOR.
class RawCBOR extends Raw {
  decode(data) {
    assert.ok(data instanceof ArrayBuffer, "the server sends only binary messages");
    const bytes = new Uint8Array(data);
    const end = 2 + new DataView(data).getUint16(0);
    const message = JSON.parse(new TextDecoder().decode(bytes.subarray(2, end)));
    const payload = bytes.subarray(end);
    if (payload.length === 0) return message;
    message.payload = isProtocol(message.type) ? JSON.parse(new TextDecoder().decode(payload)) : decode(payload);
    return message;
  }

  encode({ type, meta, payload }) {
    const head = new TextEncoder().encode(JSON.stringify({ type, meta }));
    const body = payload === undefined ? new Uint8Array() : encode(payload);
    const message = new Uint8Array(2 + head.length + body.length);
    new DataView(message.buffer).setUint16(0, head.length);
    message.set(head, 2);
    message.set(body, 2 + head.length);
    return message;
  }

  static open(token) {
    return super.open(token, ["penstock.v1.cbor"]);
  }
}

test("calls, progress, errors and publications", async () => {
  const cbor = await RawCBOR.open("ann");
  const text = await Raw.open("bob");
  assert.equal(cbor.socket.protocol, "penstock.v1.cbor");
  assert.deepEqual((await cbor.ofType("NOTE")).payload, { text: "welcome" });
  const { type, meta, payload } = await cbor.call("b1", "ASK", { do: "", n: 70_000 });
  assert.deepEqual([type, meta.correlationId, payload], ["ANSWER", "b1", { n: 70_000 }]);
  cbor.send("ASK", { correlationId: "b2" }, { do: "progress" });
  const updates = [];
  for (let i = 0; i < 5; i++) updates.push((await cbor.answer("b2")).payload);
  assert.deepEqual(updates, [{ percent: 50 }, "half", 1.5, null, []]);
  assert.equal((await cbor.answer("b2")).type, "ANSWER");
  const invalid = await cbor.call("b3", "ASK", { do: 1 });
  assert.deepEqual([invalid.type, invalid.payload.code, invalid.payload.details.field], ["RPC_ERROR", "INVALID_ARGUMENT", "do"]);
  await text.call("b4", "ASK", { do: "" });
  cbor.send("DO", {}, { what: "publish" });
  assert.deepEqual((await cbor.ofType("NOTE")).payload, { text: "to all" });
  assert.deepEqual((await text.take(({ payload: { text } }) => text === "to all")).type, "NOTE");
  await Promise.all([cbor.close(), text.close()]);
});

test("text messages are read as JSON", async () => {
  const cbor = await RawCBOR.open("ann");
  cbor.socket.send(JSON.stringify({ type: "ASK", meta: { correlationId: "t1" }, payload: { do: "", n: 1 } }));
  assert.deepEqual((await cbor.answer("t1")).payload, { n: 1 });
  await cbor.close();
});

test("binary messages that are malformed", async () => {
  const cbor = await RawCBOR.open("ann");
  await cbor.ofType("NOTE");
  for (const bytes of [[], [0], [0, 9, 123], [0, 2, 123, 125]]) {
    cbor.socket.send(new Uint8Array(bytes));
    const { type, payload } = await cbor.next();
    assert.deepEqual([type, payload.code], ["ERROR", "INVALID_ARGUMENT"], `${bytes}`);
  }
  await cbor.close();
});
