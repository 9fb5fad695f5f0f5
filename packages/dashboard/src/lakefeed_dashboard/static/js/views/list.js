// The list of all feeds: one row per feed, updated in place.

import { ApiError, get } from "../api.js";
import { fill, foreign, h, setText, visible } from "../dom.js";
import { ago, count, duration, rate } from "../format.js";
import { Sparkline } from "../parts/spark.js";
import { errorText, pauseText, setBadge, stateOf } from "../parts/state.js";

const TICK_MS = 2_000;
/** @type {Record<string, (a: any, b: any) => number>} */
const ORDERS = {
  name: (a, b) => a.feed.localeCompare(b.feed),
  state: (a, b) => stateOf(a).order - stateOf(b).order,
  lag: (a, b) => (b.lag ?? -1) - (a.lag ?? -1),
  rate: (a, b) => (b.rate ?? -1) - (a.rate ?? -1),
};

class Row {
  /** @param {any} feed */
  constructor(feed) {
    this.spark = new Sparkline();
    this.badge = h("span", { class: "badge" });
    this.sink = h("span", { class: "soft sink" });
    this.rate = h("span", { class: "value" });
    this.lag = h("span", { class: "value" });
    this.age = h("span", { class: "soft" });
    this.commit = h("span");
    this.why = h("p", { class: "why", hidden: true });
    const link = h("a", { href: `#/feed/${encodeURIComponent(feed.feed)}`, class: "name" }, foreign(feed.feed, 120));
    this.element = h(
      "tr",
      { class: "feed-row", role: "row" },
      h("th", { scope: "row", role: "rowheader", class: "cell-feed" }, link, this.sink, this.why),
      h("td", { role: "cell", class: "cell-state" }, this.badge),
      h("td", { role: "cell", class: "cell-rate", "data-title": "Rate" }, this.rate, this.spark.element),
      h("td", { role: "cell", class: "cell-lag", "data-title": "Lag" }, this.lag, " ", this.age),
      h("td", { role: "cell", class: "cell-commit", "data-title": "Last commit" }, this.commit),
    );
    this.feed = feed;
  }

  /** @param {any} feed */
  update(feed) {
    this.feed = feed;
    setBadge(this.badge, feed);
    setText(this.sink, visible(feed.sink || "", 120));
    setText(this.rate, rate(feed.rate));
    setText(this.lag, count(feed.lag));
    setText(this.age, feed.lag && feed.lag_seconds !== null ? `oldest ${duration(feed.lag_seconds)}` : "");
    const why = feed.paused ? pauseText(feed.paused) : errorText(feed.last_error);
    this.why.hidden = !why;
    this.why.className = feed.paused ? "why warn" : "why";
    setText(this.why, visible(why, 300));
    setText(this.commit, ago(feed.last_commit_at, null));
  }

  /** Add the current rate to the sparkline on each tick, because the server sends the list only when the list changes. */
  tick() {
    this.spark.add(this.feed.rate);
    setText(this.commit, ago(this.feed.last_commit_at, null));
  }
}

export class ListView {
  /** @param {HTMLElement} main */
  constructor(main) {
    document.title = "Feeds · lakefeed";
    this.feed = null;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    this.summary = h("p", { class: "soft", id: "summary" });
    this.filter = /** @type {HTMLInputElement} */ (
      h("input", { type: "search", id: "filter", placeholder: "Filter by name", oninput: () => this.arrange() })
    );
    this.order = /** @type {HTMLSelectElement} */ (
      h(
        "select",
        { id: "order", onchange: () => this.arrange() },
        [["state", "needs attention first"], ["name", "name"], ["lag", "lag"], ["rate", "rate"]].map(([value, text]) =>
          h("option", { value }, text),
        ),
      )
    );
    this.body = h("tbody", { role: "rowgroup" });
    const titles = ["Feed", "State", "Rate", "Lag", "Last commit"];
    this.table = h(
      "table",
      { role: "table", class: "feeds" },
      h("caption", { class: "unseen" }, "Feeds with their state, rate, lag and last commit"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, titles.map((title) => h("th", { scope: "col", role: "columnheader" }, title)))),
      this.body,
    );
    this.empty = h("p", { class: "empty" }, "Loading …");
    fill(
      main,
      h("div", { class: "head" }, h("div", null, h("h1", null, "Feeds"), this.summary), h(
        "div",
        { class: "controls" },
        h("label", { for: "filter" }, "Filter"),
        this.filter,
        h("label", { for: "order" }, "Order"),
        this.order,
      )),
      h("section", { class: "card", "aria-label": "All feeds" }, this.empty, this.table),
    );
    this.table.hidden = true;
    this.timer = setInterval(() => this.rows.forEach((row) => row.tick()), TICK_MS);
  }

  async load() {
    try {
      this.show((await get("/api/feeds")).feeds);
    } catch (error) {
      if (this.rows.size === 0) setText(this.empty, error instanceof ApiError ? error.text : "the list cannot be shown");
    }
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind === "feeds") this.show(content.feeds ?? content);
  }

  /** @param {any[]} feeds */
  show(feeds) {
    const started = performance.now();
    const names = new Set(feeds.map((feed) => feed.feed));
    for (const [name, row] of this.rows) {
      if (!names.has(name)) {
        row.element.remove();
        this.rows.delete(name);
      }
    }
    for (const feed of feeds) {
      const row = this.rows.get(feed.feed) ?? new Row(feed);
      this.rows.set(feed.feed, row);
      row.update(feed);
    }
    this.empty.hidden = feeds.length > 0;
    setText(this.empty, feeds.length ? "" : "This user has no feeds here. Start one: lakefeed run pipeline.yaml");
    this.table.hidden = !feeds.length;
    setText(this.summary, summarize(feeds));
    this.arrange();
    this.table.dataset.renderMs = (performance.now() - started).toFixed(1);
  }

  arrange() {
    const wanted = this.filter.value.trim().toLowerCase();
    const feeds = [...this.rows.values()].map((row) => row.feed);
    feeds.sort(ORDERS.name).sort(ORDERS[this.order.value] ?? ORDERS.name);
    feeds.forEach((feed, at) => {
      const element = /** @type {Row} */ (this.rows.get(feed.feed)).element;
      element.hidden = !feed.feed.toLowerCase().includes(wanted);
      // A move removes the focus, so only rows whose place changes are moved.
      if (this.body.children[at] !== element) this.body.insertBefore(element, this.body.children[at] ?? null);
    });
  }

  redraw() {
    this.rows.forEach((row) => row.update(row.feed));
  }

  close() {
    clearInterval(this.timer);
  }
}

/** @param {any[]} feeds */
function summarize(feeds) {
  /** @type {Map<string, number>} */
  const states = new Map();
  for (const feed of feeds) {
    const { text } = stateOf(feed);
    states.set(text, (states.get(text) ?? 0) + 1);
  }
  const parts = [...states].map(([text, number]) => `${count(number)} ${text}`);
  const total = feeds.reduce((sum, feed) => sum + (feed.rate ?? 0), 0);
  return `${count(feeds.length)} ${feeds.length === 1 ? "feed" : "feeds"}: ${parts.join(", ")} · ${rate(total)} in all`;
}
