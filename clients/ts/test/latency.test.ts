import assert from "node:assert/strict";
import { test } from "node:test";

import { latency } from "../src/latency.ts";
import { connected, createFixture, settled } from "./fixture.ts";

test("the round trip ends with the acknowledgment of a heartbeat", async () => {
  const f = await connected();
  let measured: number | undefined | string = "none";
  void latency(f.client).then((ms) => (measured = ms));
  await settled();
  assert.equal(measured, "none");
  const heartbeat = f.socket.last("__heartbeat");
  assert.equal(heartbeat.meta.ack, true);
  f.socket.answer(heartbeat, "$ws:ack");
  await settled();
  assert.equal(typeof measured, "number");
});

test("nothing is measured without a connection, or over two", async () => {
  const idle = createFixture();
  assert.equal(await latency(idle.client), undefined);
  assert.equal(idle.client.state, "idle");
  const f = await connected();
  const lost = latency(f.client);
  await settled();
  f.socket.end(1006);
  await f.clock.advance(60_000);
  assert.equal(await lost, undefined);
});
