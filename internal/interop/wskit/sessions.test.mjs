// Sessions and histories, with a plain WebSocket and with a client of ws-kit.

import assert from "node:assert/strict";
import { test } from "node:test";
import { message, z } from "@ws-kit/zod";

import { connect } from "./plain.mjs";
import { Raw } from "./raw.mjs";

const logged = ({ type, payload }) => type === "NOTE" && payload.text === "logged";

test("$ws:resume restores what handlers have subscribed, and what was missed", async () => {
  const first = await Raw.open("ann");
  const { session } = (await first.call("h", "$ws:hello", { session: true })).payload;
  assert.equal(typeof session.token, "string");
  assert.equal(session.resumeWithinMs, 60_000);
  first.send("LOG", {}, { follow: true });
  const notice = await first.take(({ type, payload }) => type === "$ws:subscribed" && payload.topic === "log/server");
  assert.deepEqual(Object.keys(notice.meta), ["timestamp"]);
  const { epoch, offset } = notice.payload;
  first.send("LOG", {}, { follow: false });
  assert.equal((await first.take(logged)).meta.offset, offset + 1);
  first.socket.terminate();
  await first.closed;

  const publisher = await Raw.open("bob");
  publisher.send("LOG", {}, { follow: false });
  await publisher.rest();
  await publisher.close();

  const second = await Raw.open("ann");
  const topics = [{ topic: "log/server", epoch, offset: offset + 1 }];
  const { type, payload } = await second.call("r", "$ws:resume", { token: session.token, topics });
  assert.equal(type, "$ws:resumed");
  assert.notEqual(payload.session.token, session.token);
  assert.deepEqual(payload.topics.find(({ topic }) => topic === "log/server"), {
    topic: "log/server",
    epoch,
    offset: offset + 1,
    recovered: true,
  });
  assert.equal((await second.take(logged)).meta.offset, offset + 2);
  second.send("$ws:ack", { correlationId: "r" });
  await second.rest(); // the server has read the acknowledgment

  const third = await Raw.open("bob");
  const used = await third.call("r", "$ws:resume", { token: payload.session.token, topics: [] });
  assert.equal(used.payload.code, "PERMISSION_DENIED", "another user");
  await third.close();
  await second.close();
});

test("a client of ws-kit receives publications of a history like any message", async () => {
  const Log = message("LOG", { follow: z.boolean() });
  const c = connect("ann");
  c.send(Log, { follow: true });
  c.send(Log, { follow: false });
  while (!c.seen.notes.includes("logged")) await c.arrival();
  await c.finish({}); // fails if a frame has a member that the schemas do not have
});
