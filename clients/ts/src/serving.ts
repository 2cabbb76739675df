import { createServed } from "./served.js";
import type { Serving } from "./types.js";

/** ClientOptions.serving: the client answers calls of the server by the functions of Client.handle. */
export const serving: Serving = createServed;
