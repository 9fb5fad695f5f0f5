// Sends requests to the server. The status 401 opens the login; other refusals become an ApiError with their text.

/** @typedef {{user: string | null, role: "viewer" | "operator", csrf: string | null, login_required: boolean}} Session */

const LIMIT_MS = 20_000;
/** A request is repeated at most this often if the server is busy. */
const REPEATS = 3;
/** @type {Session | null} */
let session = null;

export class ApiError extends Error {
  /**
   * @param {number} status 0 if the server did not answer
   * @param {string} message
   * @param {string | null} [hint]
   * @param {number} [after] seconds until the request may be repeated; 0 if the server names no time
   */
  constructor(status, message, hint = null, after = 0) {
    super(message);
    this.status = status;
    this.hint = hint;
    this.after = after;
  }

  /** The error and its hint in one text. */
  get text() {
    return this.hint ? `${this.message}: ${this.hint}` : this.message;
  }
}

/** @returns {Promise<Session>} */
export async function loadSession() {
  session = await get("/api/session");
  return /** @type {Session} */ (session);
}

export function isOperator() {
  return session?.role === "operator";
}

/**
 * @param {string} path
 * @param {number} [limit] milliseconds for each attempt
 * @returns {Promise<any>}
 */
export async function get(path, limit = LIMIT_MS) {
  for (let repeats = 0; ; repeats += 1) {
    try {
      return await ask(path, { method: "GET" }, limit);
    } catch (error) {
      if (!(error instanceof ApiError) || error.after === 0 || repeats === REPEATS) throw error;
      // The delay is random, so that pages that opened together do not retry together.
      const wait = error.after * 1000 * (1 + Math.random());
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

/**
 * @param {string} feed
 * @param {string} what
 */
export function ofFeed(feed, what) {
  return get(`/api/feeds/${encodeURIComponent(feed)}/${what}`);
}

/**
 * Request an action; return the event that logs it.
 * @param {string} feed
 * @param {Record<string, unknown>} request
 */
export function act(feed, request) {
  return ask(
    `/api/feeds/${encodeURIComponent(feed)}/actions`,
    {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": session?.csrf ?? "" },
      body: JSON.stringify(request),
    },
    LIMIT_MS,
  );
}

export async function logOut() {
  await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": session?.csrf ?? "" } }).catch(() => null);
  location.assign("/login");
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @param {number} limit
 */
async function ask(path, options, limit) {
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(limit), credentials: "same-origin" });
  } catch {
    throw new ApiError(0, "the server does not answer", "the page tries again by itself");
  }
  if (answer.status === 401) {
    location.assign(`/login${location.hash}`);
    throw new ApiError(401, "a login is required");
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) {
    const message = content?.error ?? `the server answers with status ${answer.status}`;
    const after = answer.status === 503 ? Number(answer.headers.get("retry-after")) : 0;
    throw new ApiError(answer.status, message, content?.hint, after);
  }
  return content;
}
