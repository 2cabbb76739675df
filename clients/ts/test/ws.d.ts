declare module "ws" {
  export const WebSocket: unknown;
  export const WebSocketServer: new (options: { port: number; handleProtocols(offered: Set<string>): string }) => import("node:events").EventEmitter & {
    address(): unknown;
    close(): void;
  };
}
