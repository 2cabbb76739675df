// Servers that are wrong: each must fail the check that a right server passes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { checkAnswer, newChat, Tab, until } from "./checks.mjs";

// cutAndResume reads a run in two pieces. Between them, tamper sees the resume.
async function cutAndResume(tamper) {
  const chat = newChat();
  const tab = new Tab({ tamper });
  const first = await tab.send(chat, { items: 100, everyMs: 20 }); // two seconds, so that it is not complete before the resume
  await until(() => first.chunks.length > 5);
  tab.cut();
  await assert.rejects(first.end);
  const message = await checkAnswer(await tab.resume(chat), 100);
  assert.equal(message.id, first.chunks[0].messageId, "one message");
  tab.close();
}

// nthRequest calls change for the frames of the n-th request.
function nthRequest(n, change) {
  const ids = [];
  return (frame) => {
    if (!ids.includes(frame.requestId)) {
      ids.push(frame.requestId);
    }
    return ids.indexOf(frame.requestId) === n ? change(frame) : [frame];
  };
}

// lost drops the chunk with a sequence, and numbers the others again.
function lost(dropped) {
  return nthRequest(1, (frame) => {
    if (frame.type !== "chunk" || frame.sequence < dropped) {
      return [frame];
    }
    return frame.sequence === dropped ? [] : [{ ...frame, sequence: frame.sequence - 1 }];
  });
}

const withChunk = (frame, change) => (frame.type === "chunk" ? { ...frame, chunk: change(frame.chunk) } : frame);

const wrong = {
  "a stray frame": nthRequest(1, (frame) => (frame.type === "start" ? [{ type: "hello" }, frame] : [frame])),
  "a frame of another request": nthRequest(1, (frame) => (frame.type === "start" ? [{ type: "end", requestId: "x" }, frame] : [frame])),
  "a gap": nthRequest(1, (frame) => (frame.sequence > 1 ? [{ ...frame, sequence: frame.sequence + 1 }] : [frame])),
  "a null": nthRequest(1, (frame) => [withChunk(frame, (c) => ({ ...c, providerMetadata: null }))]),
  "a new messageId": nthRequest(1, (frame) => [withChunk(frame, (c) => (c.type === "start" ? { ...c, messageId: "new" } : c))]),
  "items lost between replay and live": lost(4),
  "the first item lost": lost(3),
  "no finish": nthRequest(1, (frame) => (frame.chunk?.type === "finish" ? [] : [frame])),
  "a frame after the end": nthRequest(1, (frame) => (frame.type === "end" ? [frame, frame] : [frame])),
};

test("the right server passes", () => cutAndResume());

for (const [name, tamper] of Object.entries(wrong)) {
  test(`${name} fails`, () => assert.rejects(cutAndResume(tamper)));
}
