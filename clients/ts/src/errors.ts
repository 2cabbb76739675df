/** What an error says besides its code and message. */
export interface ErrorDetails {
  retryable?: boolean;
  retryAfterMs?: number | null;
  details?: Record<string, unknown>;
  mayHaveExecuted?: boolean;
  cause?: unknown;
}

/** The error of a message: from the server, or from the client if the message has no outcome. */
export class PenstockError extends Error {
  /** One of the codes in section 4 of the protocol, or a code of the application. */
  declare readonly code: string;
  /** Whether the same message may succeed later, and is safe to send again. */
  declare readonly retryable: boolean;
  /** Milliseconds to wait before the next attempt. null: no wait helps. undefined: unknown. */
  declare readonly retryAfterMs: number | null | undefined;
  /** Data for programs, for example the kind of a limit. */
  declare readonly details: Record<string, unknown>;
  /** true: the connection was lost before the outcome was known, and the server may have handled the message. */
  declare readonly mayHaveExecuted: boolean | undefined;

  constructor(code: string, message?: string, more?: ErrorDetails) {
    super(message || code);
    Object.assign(this, { name: "PenstockError", code, retryable: false }, more);
    this.details ??= {};
  }
}

/** An error with a cause, whose text is its message. */
export const failure = (code: string, cause: unknown) => new PenstockError(code, `${cause}`, { cause });

/** The error in the payload of ERROR or RPC_ERROR, or in the reason of a close frame. */
export const decodeError = ({ code = "INTERNAL", message, ...more }: any = {}): PenstockError => {
  if (more.retryAfterMs < 0) more.retryAfterMs = 0; // or the client would not wait at all
  return new PenstockError(code, message, more);
};
