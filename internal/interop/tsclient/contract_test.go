package tsclient_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// generated is a contract that package contract has generated, and uses how a client is typed by it.
const (
	generated = "../../../contract/testdata/kitchen.ts"
	uses      = `import { createClient } from "../src/index.ts";
import type { StandardCode } from "../src/index.ts";
import { stream } from "../src/streams.ts";
import { tryCall } from "../src/try-call.ts";
import type { Contract, ErrorCode } from "./kitchen.ts";

"" as StandardCode satisfies ErrorCode;
"" as ErrorCode satisfies StandardCode | "EMPTY" | "TOO_HARD";

export async function use(): Promise<void> {
  const client = createClient<Contract>({ url: "ws://localhost/ws" });
  await client.sendWithAck("PING");
  await client.call("QUIET", { Why: "late" });
  // @ts-expect-error: a member is missing
  await client.call("QUIET", {});
  (await client.call("ASK", { Question: "?" })).Text satisfies string;
  const { error } = await tryCall(client, "ASK", { Question: "?" });
  if (error?.code === "TOO_HARD") error.details.level satisfies number;
  if (error?.code === "NOT_FOUND") error.message satisfies string;
  // @ts-expect-error: the call does not declare it
  if (error?.code === "EMPTY") error.message satisfies string;
  client.on("RECEIVED", ({ state }) => state satisfies string);
  // @ts-expect-error: the server does not send it
  client.on("ASK", () => {});
  // @ts-expect-error: clients do not send it
  client.nextAllowedAt("RECEIVED");
  // @ts-expect-error: no topic has this name
  client.subscribe("romm/go");
  // @ts-expect-error: the topic does not have this message
  client.subscribe("room/lobby", { on: { RECEIVED: () => {} } });
  // @ts-expect-error: it is no stream
  stream(client, "ASK", { Question: "?" });
  client.handle("CONFIRM", "CONFIRMED", (_request, { signal }) => signal.throwIfAborted() as never);
  client.subscribe("room/go", { on: { PONG: () => {} } });
  for await (const row of stream(client, "EXPORT", { Table: "users" }, { onReply: ({ Rows }) => Rows satisfies number })) row.Cells satisfies string[];
}
`
)

func TestTypeScriptClient_IsTypedByGeneratedContract(t *testing.T) {
	dir := install(t)
	contract, err := os.ReadFile(generated)
	require.NoError(t, err)
	for name, text := range map[string][]byte{"kitchen.ts": contract, "generated.ts": []byte(uses)} {
		path := filepath.Join(dir, "test", name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		defer func() { _ = os.Remove(path) }()
	}
	run(t, nil, "npx", "tsc", "-p", "test")
}
