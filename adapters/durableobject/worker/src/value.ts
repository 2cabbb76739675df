/** A RequestError is a mistake of the caller. Its message is part of the response. */
export class RequestError extends Error {
  constructor(
    readonly status: 400 | 413,
    message: string,
  ) {
    super(message);
  }
}

export function bad(message: string): RequestError {
  return new RequestError(400, message);
}

/** checkLength checks the number of numbers of a part or call at a place of the request. */
export function checkLength(numbers: unknown[], at: string, length: number): void {
  if (numbers.length !== length) {
    throw bad(`${at} must have ${length} numbers`);
  }
}

export function integer(value: unknown, name: string, min: number, max: number): number {
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    throw bad(`${name} must be an integer from ${min} to ${max}`);
  }
  return value as number;
}

export function text(value: unknown, name: string, min: number, max: number): string {
  if (typeof value !== "string" || value.length < min || value.length > max || !/^[\x20-\x7e]*$/.test(value)) {
    throw bad(`${name} must be ${min} to ${max} characters of printable ASCII`);
  }
  return value;
}
