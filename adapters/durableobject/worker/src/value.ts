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

/** integer checks a number, which is the element of that index at a place of the request. */
export function integer(value: unknown, at: string, index: number, min: number, max: number): number {
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    throw bad(`${at}[${index}] must be an integer from ${min} to ${max}`);
  }
  return value as number;
}

/** text is integer for strings, whose length is from min to max. */
export function text(value: unknown, at: string, index: number, min: number, max: number): string {
  if (typeof value !== "string" || value.length < min || value.length > max || !/^[\x20-\x7e]*$/.test(value)) {
    throw bad(`${at}[${index}] must be ${min} to ${max} characters of printable ASCII`);
  }
  return value;
}
