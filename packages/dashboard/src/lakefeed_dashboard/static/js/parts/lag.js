// The lag by partition, in records and seconds: the partitions with the largest lag, and the number of the other partitions.

import { fill, foreign, h, s, section, setText, table } from "../dom.js";
import { count, duration } from "../format.js";

const MOST = 25;
/** The least time between two rebuilds of the table, which may have many rows. */
const EVERY_MS = 2_000;

export class LagPart {
  /** @param {string} feed */
  constructor(feed) {
    this.feed = feed;
    this.shownAt = 0;
    this.most = MOST;
    this.summary = h("p", { class: "soft" }, "Loading …");
    this.place = h("div");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.showMore() }, "Show more");
    this.element = section("Lag by partition", this.summary, this.place, this.more);
    /** @type {any} */
    this.progress = null;
  }

  load() {}

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind !== "progress") return;
    this.progress = content;
    if (performance.now() - this.shownAt < EVERY_MS && this.shownAt) return;
    this.show();
  }

  showMore() {
    this.most += 100;
    this.show();
  }

  show() {
    this.shownAt = performance.now();
    const partitions = [...(this.progress.partitions ?? [])].sort((a, b) => (b.lag ?? Infinity) - (a.lag ?? Infinity) || a.topic.localeCompare(b.topic) || a.partition - b.partition);
    const shown = partitions.slice(0, this.most);
    const rest = partitions.slice(this.most);
    const behind = partitions.filter((one) => one.lag !== 0).length;
    setText(
      this.summary,
      partitions.length
        ? `${count(this.progress.lag)} records in all, the oldest ${duration(this.progress.lag_seconds)} old. ${count(behind)} of ${count(partitions.length)} partitions have a lag. The driver read the end offsets when it planned the newest batch.`
        : "The driver has not read any partition yet.",
    );
    const most = Math.max(1, ...shown.map((one) => one.lag ?? 0));
    const number = (/** @type {string} */ title) => ({ title, number: true });
    const rows = shown.map((one) => [
      h("span", null, foreign(one.topic, 100), `-${one.partition}`),
      bar(one.lag ?? 0, most),
      count(one.lag),
      duration(one.lag === 0 ? 0 : one.uncommitted_seconds),
      count(one.unread),
      count(one.uncommitted),
      count(one.committed),
      count(one.end),
    ]);
    if (rest.length) {
      const sum = rest.reduce((total, one) => total + (one.lag ?? 0), 0);
      rows.push([h("span", { class: "soft" }, `${count(rest.length)} more partitions`), "", count(sum), "", "", "", "", ""]);
    }
    const scrolled = this.place.firstElementChild?.scrollLeft ?? 0;
    fill(
      this.place,
      partitions.length
        ? table({
            caption: "Lag by partition, largest first",
            columns: ["Partition", "", number("Lag"), number("Oldest"), number("Not read"), number("Not committed"), number("Committed offset"), number("End offset")],
            rows,
          })
        : "",
    );
    if (this.place.firstElementChild) this.place.firstElementChild.scrollLeft = scrolled;
    this.more.hidden = !rest.length;
  }

  redraw() {
    if (this.progress) this.show();
  }
}

/**
 * @param {number} value
 * @param {number} most
 */
export function bar(value, most) {
  const width = Math.max(value > 0 ? 0.8 : 0, (100 * value) / most);
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
    s("rect", { class: "c3", x: 0, y: 1, width: width.toFixed(2), height: 10 }),
  );
}
