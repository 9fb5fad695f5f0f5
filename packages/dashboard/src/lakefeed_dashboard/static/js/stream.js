// Receives the server's events. Reports a lost connection and restores it; then the views reload their data.

import { get } from "./api.js";

const KINDS = ["feeds", "progress", "batch", "event", "panels"];
const SHORTEST_MS = 1_000;
const LONGEST_MS = 15_000;
/** After this time without an event, the page checks that the server answers. */
const SILENT_MS = 15_000;
const CHECK_MS = 5_000;

/**
 * @typedef {object} Follower
 * @property {(kind: string, content: any) => void} onEvent
 * @property {() => void} onOpen called also when a lost connection is restored
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
   * Follow the list of feeds, and the details of one feed if `feed` is not null.
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
    // Reconnect from here, because the browser stops its own retries at the first answer that is no stream.
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
    // The stream's error has no status. If the session has ended, this request gets 401 and opens the login.
    void get("/api/session", CHECK_MS).catch(() => null);
  }

  again() {
    if (this.lostSince !== null) {
      this.wait = SHORTEST_MS;
      this.connect();
    }
  }

  /** Check that a silent server answers, because a server that hangs leaves the connection open. */
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
