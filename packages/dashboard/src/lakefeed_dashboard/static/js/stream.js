// The server's events. A lost connection is detected, shown and restored; then the views reload everything.

import { get } from "./api.js";

const KINDS = ["feeds", "progress", "batch", "event", "panels"];
const SHORTEST_MS = 1_000;
const LONGEST_MS = 15_000;
/** After this time without an event, the server is asked whether it is alive. */
const SILENT_MS = 15_000;
const CHECK_MS = 5_000;

/**
 * @typedef {object} Follower
 * @property {(kind: string, content: any) => void} onEvent
 * @property {() => void} onOpen also after a lost connection
 * @property {(since: Date) => void} onLost
 */

export class Stream {
  /** @param {Follower} follower */
  constructor(follower) {
    this.follower = follower;
    /** @type {string | null} */
    this.feed = null;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {Date | null} */
    this.lostSince = null;
    this.wait = SHORTEST_MS;
    this.heardAt = Date.now();
    this.timer = 0;
    setInterval(() => this.check(), CHECK_MS);
    addEventListener("online", () => this.again());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.lose());
  }

  /**
   * Follow one feed, or only the list.
   * @param {string | null} feed
   */
  follow(feed) {
    this.feed = feed;
    this.connect();
  }

  connect() {
    this.close();
    const source = new EventSource(`/api/stream${this.feed === null ? "" : `?feed=${encodeURIComponent(this.feed)}`}`);
    this.source = source;
    this.heardAt = Date.now();
    source.onopen = () => this.heard(true);
    // Do not rely on the browser's own retries: they end for good at an answer that is not a stream.
    source.onerror = () => this.lose();
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        this.heard(false);
        this.follower.onEvent(kind, JSON.parse(/** @type {MessageEvent} */ (event).data));
      });
    }
  }

  /** @param {boolean} isNew */
  heard(isNew) {
    this.heardAt = Date.now();
    this.wait = SHORTEST_MS;
    if (isNew) {
      this.lostSince = null;
      this.follower.onOpen();
    }
  }

  lose() {
    this.close();
    this.lostSince ??= new Date(this.heardAt);
    this.follower.onLost(this.lostSince);
    this.timer = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(LONGEST_MS, this.wait * 2);
    // A stream does not report why it was refused. If the login has ended, this request leads to a new login.
    void get("/api/session", CHECK_MS).catch(() => null);
  }

  again() {
    if (this.lostSince !== null) {
      this.wait = SHORTEST_MS;
      this.connect();
    }
  }

  /** Ask a silent server whether it is alive, because a hanging server leaves the connection open. */
  async check() {
    if (this.lostSince !== null || this.source === null || Date.now() - this.heardAt < SILENT_MS) return;
    const source = this.source;
    try {
      await get("/api/session", CHECK_MS);
      this.heardAt = Date.now();
    } catch {
      if (this.source === source) this.lose();
    }
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
