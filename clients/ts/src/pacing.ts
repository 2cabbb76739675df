import { createPacer } from "./pacer.js";
import type { Pacing } from "./types.js";

/** ClientOptions.pacing: the client sends only what the limits of the server permit, and repeats rejected messages in order. */
export const pacing: Pacing = createPacer;
