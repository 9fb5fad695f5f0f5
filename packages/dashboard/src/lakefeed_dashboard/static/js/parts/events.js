// The log of a feed's events, newest first.

import { ofFeed } from "../api.js";
import { fill, foreign, h, section } from "../dom.js";
import { time, zoneName } from "../format.js";

const MOST = 300;
/** @type {Record<string, string>} */
const COLOURS = { error: "bad", failed: "bad", dead_letters: "warn", over_budget: "warn", audit_failed: "warn", published: "good", sink_paused: "warn", paused: "warn", action: "calm", changed: "calm", resumed: "good", sink_resumed: "good", started: "good" };

export class EventsPart {
  /** @param {string} feed */
  constructor(feed) {
    this.feed = feed;
    /** @type {any[]} */
    this.events = [];
    this.list = h("ol", { class: "log", reversed: true });
    this.zone = h("p", { class: "soft" });
    this.empty = h("p", { class: "empty" }, "Nothing has happened yet.");
    this.element = section("Events of this run", this.zone, this.empty, this.list);
  }

  async load() {
    try {
      this.events = (await ofFeed(this.feed, "events?after=0")).events.slice(-MOST);
    } catch {
      return; // Show no error here, because the view already shows that the feed does not answer.
    }
    this.redraw();
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind !== "event") return;
    if (content.number <= (this.events.at(-1)?.number ?? 0)) {
      // Event number 1 begins a new run, so the events of the previous run are replaced.
      if (content.number === 1) void this.load();
      return;
    }
    this.events.push(content);
    this.list.prepend(line(content));
    this.empty.hidden = true;
    while (this.events.length > MOST) {
      this.events.shift();
      this.list.lastElementChild?.remove();
    }
  }

  redraw() {
    this.zone.textContent = `Newest first, times in ${zoneName()}`;
    this.empty.hidden = this.events.length > 0;
    fill(this.list, [...this.events].reverse().map(line));
  }
}

/** @param {any} event */
function line(event) {
  return h(
    "li",
    null,
    h("time", { datetime: event.at }, time(event.at)),
    h("span", null, h("span", { class: `chip ${COLOURS[event.kind] ?? ""}` }, String(event.kind).replaceAll("_", " "))),
    h("p", null, foreign(event.message, 600)),
  );
}
