// The class WebSocketChatTransport against two nodes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { checkAnswer, newChat, sleep, Tab, text, textOf, until, urls, userMessage } from "./checks.mjs";

for (const items of [0, 1, 500]) {
  test(`${items} items`, async () => {
    const tab = new Tab();
    await checkAnswer(await tab.send(newChat(), { items, everyMs: 1 }), items);
    tab.close();
  });
}

test("every type of chunk is accepted", async () => {
  const [tab, other] = [new Tab(), new Tab({ node: 1 })];
  const chat = newChat();
  const sent = await tab.send(chat, { everything: true });
  const message = await sent.message;
  assert.equal(sent.chunks.filter((c) => c.transient).length, 1);
  const resumed = await other.resume(chat);
  assert.deepEqual(await resumed.message, message, "a replay gives the same message");
  assert.equal(resumed.chunks.filter((c) => c.transient).length, 0);
  assert.equal(message.id, "message-1");
  assert.deepEqual(message.metadata, { model: "fake", tokens: 7 });
  assert.equal(textOf(message), "Good morning");
  const tools = message.parts.filter((p) => p.toolCallId).map((p) => [p.toolCallId, p.type, p.state]);
  assert.deepEqual(tools, [
    ["t1", "tool-weather", "output-available"],
    ["t2", "tool-weather", "output-error"],
    ["t3", "tool-weather", "output-error"],
    ["t4", "dynamic-tool", "output-available"],
    ["t5", "tool-delete", "output-denied"],
  ]);
  assert.equal(message.parts.filter((p) => p.state === "streaming").length, 0);
  tab.close();
  other.close();
});

test("many runs on a socket", async () => {
  const tab = new Tab();
  const answers = await Promise.all([...Array(50).keys()].map((i) => tab.send(newChat(), { items: i, everyMs: 1 })));
  await Promise.all(answers.map((answer, i) => checkAnswer(answer, i)));
  assert.equal(tab.Socket.sockets.length, 1);
  tab.close();
});

test("20 tabs on two nodes at any time", async () => {
  const chat = newChat();
  const starter = new Tab();
  const answer = await starter.send(chat, { items: 300, everyMs: 2 });
  await until(() => answer.chunks.length > 0);
  const messages = await Promise.all(
    [...Array(20).keys()].map(async (i) => {
      await sleep(i * 50);
      const tab = new Tab({ node: i % 2 });
      const message = await checkAnswer(await tab.resume(chat), 300);
      tab.close();
      return message;
    }),
  );
  messages.push(await checkAnswer(answer, 300));
  assert.equal(new Set(messages.map((m) => m.id)).size, 1, "one message");
  starter.close();
});

test("cut and resume gives one message", async () => {
  const chat = newChat();
  const tab = new Tab();
  const first = await tab.send(chat, { items: 300, everyMs: 2 });
  const ids = new Set();
  for (let cuts = 0, answer = first; cuts < 3; cuts++) {
    await until(() => answer.chunks.length > 3);
    ids.add(answer.chunks[0].messageId);
    tab.cut();
    await assert.rejects(answer.end, TypeError);
    answer = await tab.resume(chat);
    assert.ok(answer);
  }
  const resumed = new Tab({ node: 1 });
  ids.add((await checkAnswer(await resumed.resume(chat), 300)).id);
  assert.equal(ids.size, 1);
  tab.close();
  resumed.close();
});

test("8 sends at once give one run", async () => {
  const [chat, message] = [newChat(), userMessage()];
  const tabs = [...Array(8).keys()].map((i) => new Tab({ node: i % 2 }));
  const same = await Promise.all(tabs.map((tab) => tab.send(chat, { items: 50, everyMs: 2 }, { message })));
  const messages = await Promise.all(same.map((answer) => checkAnswer(answer, 50)));
  assert.equal(new Set(messages.map((m) => m.id)).size, 1);

  const other = newChat();
  const answers = await Promise.all(tabs.map((tab) => tab.send(other, { items: 50, everyMs: 10 })));
  const outcomes = await Promise.allSettled(answers.map((answer) => answer.end));
  const failed = outcomes.filter((o) => o.status === "rejected");
  assert.equal(failed.length, 7, "of different messages, one starts a run");
  for (const { reason } of failed) {
    assert.match(reason.message, /another run is active|another run is being started/);
  }
  for (const tab of tabs) {
    tab.close();
  }
});

test("an abort of the starter stops the run for everyone", async () => {
  const chat = newChat();
  const [starter, viewer] = [new Tab(), new Tab({ node: 1 })];
  const stop = new AbortController();
  const answer = await starter.send(chat, { items: 1e6, everyMs: 2 }, { abortSignal: stop.signal });
  await until(() => answer.chunks.length > 3);
  const resumed = await viewer.resume(chat);
  await until(() => resumed.chunks.length > 3);
  const began = Date.now();
  stop.abort();
  await answer.end;
  await resumed.end;
  assert.ok(Date.now() - began < 1500);
  assert.deepEqual(
    resumed.chunks.slice(-3).map((c) => c.type),
    ["text-end", "finish-step", "abort"],
  );
  await checkAnswer(await starter.send(chat, { items: 5, everyMs: 1 }), 5);
  starter.close();
  viewer.close();
});

test("an abort of a viewer who may not stop only detaches", async () => {
  const chat = newChat();
  const [starter, viewer] = [new Tab(), new Tab({ node: 1, user: "viewer" })];
  const answer = await starter.send(chat, { items: 300, everyMs: 2 });
  await until(() => answer.chunks.length > 3);
  const stop = new AbortController();
  const resumed = await viewer.resume(chat, { abortSignal: stop.signal });
  await until(() => resumed.chunks.length > 3);
  stop.abort();
  await resumed.end;
  await checkAnswer(answer, 300);
  starter.close();
  viewer.close();
});

test("other users see no run and start none", async () => {
  const chat = newChat();
  const [starter, other] = [new Tab(), new Tab({ node: 1, user: "bob" })];
  const answer = await starter.send(chat, { items: 100, everyMs: 2 });
  await until(() => answer.chunks.length > 3);
  assert.equal(await other.resume(chat), null);
  assert.equal(await other.resume(newChat()), null);
  await assert.rejects((await other.send(chat, { items: 1 })).end, /not yours/);
  await checkAnswer(answer, 100);
  await assert.rejects(new Tab({ user: "" }).send(chat, { items: 1 }), TypeError, "the handshake is refused");
  starter.close();
  other.close();
});

test("a failed run is an error, for a resume too", async () => {
  const chat = newChat();
  const tab = new Tab();
  for (const open of [() => tab.send(chat, { items: 5, failAfter: 3 }), () => tab.resume(chat)]) {
    const answer = await open();
    await assert.rejects(answer.end, /the model has failed/);
    const deltas = answer.chunks.filter((c) => c.type === "text-delta").map((c) => c.delta);
    assert.equal(deltas.join(""), text(3));
    assert.equal(answer.chunks.at(-1).type, "finish-step");
  }
  tab.close();
});

test("invalid frames", async () => {
  for (const frame of ["", "{", "[]", "null", '{"type":"send"}', '{"type":"abort","requestId":7}']) {
    const { Socket } = new Tab();
    const socket = new Socket(`${urls[0]}?user=ann`);
    const code = await new Promise((resolve) => {
      socket.onopen = () => socket.ws.send(frame);
      socket.onclose = ({ code }) => resolve(code);
    });
    assert.equal(code, 1008, frame);
  }
  const tab = new Tab();
  tab.transport.prepareSendMessagesRequest = () => ({ messages: [] });
  await assert.rejects((await tab.send(newChat(), {})).end, /messages must have one with the role user/);
  tab.transport.prepareSendMessagesRequest = undefined;
  await checkAnswer(await tab.send(newChat(), { items: 1 }), 1);
  assert.equal(tab.Socket.sockets.length, 1, "the connection stays open");
  tab.close();
});
