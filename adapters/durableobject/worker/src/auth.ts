import type { Env } from "./env";

/**
 * isAuthorized reports whether a request has the header "Authorization: Bearer" with SECRET or
 * SECRET_NEXT. An empty secret never matches, so a Worker without secrets rejects every request.
 */
export async function isAuthorized(request: Request, env: Env): Promise<boolean> {
  const token = /^bearer +(.+)$/i.exec(request.headers.get("Authorization") ?? "")?.[1];
  if (!token) {
    return false;
  }
  // Digests have one length, which timingSafeEqual requires, and hide that of the secret.
  const given = await digest(token);
  let matches = false;
  for (const secret of [env.SECRET?.trim(), env.SECRET_NEXT?.trim()]) {
    if (secret && crypto.subtle.timingSafeEqual(given, await digest(secret))) {
      matches = true;
    }
  }
  return matches;
}

function digest(text: string): Promise<ArrayBuffer> {
  return crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
}
