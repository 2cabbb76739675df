// A client of ws-kit that records what it receives, and compares it with what it must receive.

import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { afterEach } from "node:test";

import { createClient, RpcError } from "./client.mjs";
import { Ask, Err, Note, problemOf } from "./schemas.mjs";

const url = process.env.PENSTOCK_URL;

// A test that fails must not leave a connection open, which would keep the program running.
const open = new Set();
afterEach(() => open.forEach((client) => client.close()));

// connect opens a client that records what it receives.
export function connect(name, options = {}) {
  const arrived = new EventEmitter();
  const seen = { problems: [], unhandled: {}, answers: {}, errors: [], notes: [] };
  const client = createClient({
    url,
    auth: { token: name },
    onFrame(frame) {
      arrived.emit("frame");
      const problem = problemOf(frame);
      if (problem) seen.problems.push(problem);
      const { type, meta } = JSON.parse(frame);
      const id = meta.correlationId;
      if (id === undefined || id.startsWith("$ws:")) return; // the ID of a call of the server
      if (type !== "$ws:rpc-progress") seen.answers[id] = (seen.answers[id] ?? 0) + 1;
      else if (seen.answers[id]) seen.problems.push(`progress after the answer: ${frame}`);
    },
    onUnhandled: ({ type }) => (seen.unhandled[type] = (seen.unhandled[type] ?? 0) + 1),
    onError: (error, { type }) => seen.problems.push(`${type}: ${error}`),
    ...options,
  });
  open.add(client);
  client.on(Note, ({ payload }) => seen.notes.push(payload.text));
  client.on(Err, ({ payload }) => seen.errors.push(payload));
  let ids = 0;
  const request = (schema, payload, opts) =>
    client.request(schema, payload, { correlationId: `${name}-${++ids}`, ...opts });

  // settled waits until the server has handled the events that were sent before.
  const settled = () => request(Ask, { do: "" });

  // finish closes the connection, and compares what arrived: the number of frames by type that
  // no handler was registered for, and one answer for each of the given number of requests.
  async function finish(unhandled, answers = ids) {
    await client.close();
    assert.deepEqual(seen.problems, []);
    assert.deepEqual(seen.unhandled, unhandled);
    assert.equal(Object.keys(seen.answers).length, answers);
    for (const [id, count] of Object.entries(seen.answers)) assert.equal(count, 1, `answers to ${id}`);
    assert.equal(client.pending, 0);
  }
  return { ...client, client, request, settled, finish, seen, arrival: () => once(arrived, "frame") };
}

// rejection returns the RpcError of a request that the server must reject.
export async function rejection(request) {
  const error = await request.then((reply) => assert.fail(JSON.stringify(reply)), (error) => error);
  assert.ok(error instanceof RpcError, `${error}`);
  const { code, details, retryable, retryAfterMs } = error;
  return JSON.parse(JSON.stringify({ code, details, retryable, retryAfterMs }));
}
