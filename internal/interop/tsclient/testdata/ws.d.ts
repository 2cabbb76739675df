// What @types/ws declares, as far as a client uses it.

declare module "ws" {
  export const WebSocket: new (address: string | URL, protocols?: string | string[]) => globalThis.WebSocket;
}
