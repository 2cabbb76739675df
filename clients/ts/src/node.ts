import { createClient as create } from "./index.js";
import type { AnyContract, Client, ClientOptions, WebSocketLike } from "./index.js";

export { PenstockError } from "./index.js";

// The client in Node.js, which package.json selects there: it knows the status with which a server rejects a handshake.

const ASK_MS = 5_000;
const MAX_BODY = 4_096; // characters
const LOST = 1006;

type Constructor = NonNullable<ClientOptions["webSocket"]>;
type End = { code: number; reason: string };

/** Creates a client. An attempt that the server rejects with a status ends with the close code 4000 plus the status. */
export function createClient<C = AnyContract>(options: ClientOptions): Client<C> {
  return create<C>({ ...options, webSocket: withStatus(options.webSocket) });
}

/** The constructor of sockets whose close event has the status. */
function withStatus(custom: Constructor | undefined): Constructor {
  return class {
    constructor(address: string, protocols: string[]) {
      const socket: any = new (custom ?? WebSocket)(address, protocols);
      if (!socket.addEventListener) return socket;
      let undecided = true;
      let message = "";
      let onclose: WebSocketLike["onclose"] = null;
      Object.defineProperty(socket, "onclose", { get: () => onclose, set: (f) => (onclose = f) });
      socket.addEventListener("open", () => (undecided = false));
      socket.addEventListener("error", (event: any) => (message = event.message));
      socket.addEventListener("close", async (event: End) => {
        if (!undecided || event.code !== LOST) return onclose?.(event);
        onclose?.((custom ? statusIn(message) : await ask(address, protocols)) ?? event);
      });
      return socket;
    }
  } as unknown as Constructor;
}

/** The end by an error of the package ws, whose text has the status. */
function statusIn(message: string): End | undefined {
  const [, status] = /server response: ([45]\d\d)$/.exec(message) ?? [];
  return status ? { code: 4000 + +status, reason: "" } : undefined;
}

/** Sends the handshake again, because WebSocket does not have the status. Other sockets may send headers that nothing else knows. */
function ask(address: string, protocols: string[]): Promise<End | undefined> {
  const url = address.replace(/^ws/, "http");
  const http = (globalThis as any).process?.getBuiltinModule?.(url.startsWith("https") ? "node:https" : "node:http");
  return new Promise((resolve) => {
    if (!http) return resolve(undefined);
    const headers = {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16)))),
      ...(protocols.length && { "Sec-WebSocket-Protocol": protocols.join(", ") }),
    };
    const request = http.get(url, { headers, agent: false, signal: AbortSignal.timeout(ASK_MS) });
    request.on("error", () => resolve(undefined));
    request.on("upgrade", (_: unknown, socket: any) => {
      socket.destroy();
      resolve(undefined); // another attempt would succeed
    });
    request.on("response", (response: any) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => body.length < MAX_BODY && (body += text));
      response.on("close", () => resolve(endOf(response, body)));
    });
  });
}

/** The close frame with the meaning of a response. */
function endOf({ statusCode: status, headers }: any, body: string): End | undefined {
  if (status < 400) return undefined;
  let error: any = {};
  try {
    error = JSON.parse(body);
  } catch {} // of a proxy
  const seconds = +headers["retry-after"];
  const { code = "UNAVAILABLE", message = `the server has rejected the connection with ${status}`, retryAfterMs = seconds ? seconds * 1_000 : undefined } = error ?? {};
  return { code: 4000 + status, reason: JSON.stringify({ code, message, retryAfterMs }) };
}
