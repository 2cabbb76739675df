import { decode, encode, Tagged, objectToTokens, type DecodeOptions, type EncodeOptions } from "cborg";
import type { ClientOptions, Format } from "./index.js";

// Section 11 of the protocol: a message is the length of its head in 2 bytes, the head as JSON, and the payload.

const SUBPROTOCOL = "penstock.v1.cbor";
const HEAD = 2; // bytes before the head

const TIME = 0; // the tag of a time as text (RFC 8949, section 3.4.1)

const encoding: EncodeOptions = {
  ignoreUndefinedProperties: true,
  typeEncoders: { Date: (time: Date, _, options, stack) => objectToTokens(new Tagged(TIME, time.toISOString()), options, stack) },
};
const decoding: DecodeOptions = { tags: { [TIME]: (text) => new Date(text() as string) } };

/**
 * The contract of a client with cbor: times are Date and bytes are Uint8Array, where JSON has strings.
 *
 *     const client = createClient<CBOR<Contract>>({ url, ...cbor() });
 */
export type CBOR<T> = 0 extends 1 & T
  ? T
  : T extends { readonly __format: "date-time" }
    ? Date
    : T extends { readonly __format: "base64" }
      ? Uint8Array
      : T extends object
        ? { [K in keyof T]: CBOR<T[K]> }
        : T;

/** The payloads that the protocol itself defines are JSON in every format. */
const isJSON = (type: string) => /^(\$|(RPC_)?ERROR$)/.test(type) && type !== "$ws:rpc-progress";

const format: Format = {
  stringify(payload, type) {
    if (payload === undefined || isJSON(type)) return JSON.stringify(payload);
    const body = encode(payload, encoding);
    const { length } = body;
    return {
      length,
      join(headText: string) {
        const head = new TextEncoder().encode(headText);
        const message = new Uint8Array(HEAD + head.length + length);
        new DataView(message.buffer).setUint16(0, head.length);
        message.set(head, HEAD);
        message.set(body, HEAD + head.length);
        return message;
      },
    };
  },

  parse(data: ArrayBuffer | string) {
    if (typeof data === "string") throw new Error(`the server has not selected the subprotocol ${SUBPROTOCOL}: its Options.Codecs must have cbor.New`);
    const text = new TextDecoder();
    const end = HEAD + new DataView(data).getUint16(0);
    const body = new Uint8Array(data, end);
    const { type, meta } = JSON.parse(text.decode(new Uint8Array(data, HEAD, end - HEAD)));
    return { type, meta, payload: body.length ? (isJSON(type) ? JSON.parse(text.decode(body)) : decode(body, decoding)) : undefined };
  },
};

/**
 * Options of a client whose payloads are CBOR (RFC 8949), which is smaller than JSON for numbers and bytes. The server must support it, or
 * no attempt to connect succeeds. protocols are further subprotocols.
 */
export const cbor = (protocols: string[] = []): Required<Pick<ClientOptions, "protocols" | "format">> => ({ protocols: [SUBPROTOCOL, ...protocols], format });
