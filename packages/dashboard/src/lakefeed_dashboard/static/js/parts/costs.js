// S3 requests per batch and per hour, by class of object, and their price by the pipeline file's tariff.

import { ofFeed } from "../api.js";
import { fill, h, table, visible } from "../dom.js";
import { count, duration, money, short } from "../format.js";
import { History } from "../history.js";
import { Chart } from "./chart.js";
import { DetailPart } from "./detail.js";

export class CostsPart extends DetailPart {
  /** @param {string} feed */
  constructor(feed) {
    super(feed, { title: "Requests to S3", what: "costs" });
    this.history = new History(86_400);
    this.chart = new Chart({
      title: "S3 requests per batch",
      x: "Time",
      isTime: true,
      series: [{ title: "requests", colour: 5, show: (value) => count(value) }],
      axis: short,
    });
    this.element = h("div", { class: "steps" }, this.element, this.chart.element);
  }

  async load() {
    const costs = super.load();
    try {
      this.history.load(await ofFeed(this.feed, "history?most=600"));
      this.draw();
    } catch {
      // Show no error here, because the view already shows that the feed does not answer.
    }
    await costs;
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind !== "batch") return;
    this.history.addBatch(content);
    this.draw();
  }

  draw() {
    const moments = this.history.moments.filter((one) => one.requests !== null);
    const values = /** @type {number[]} */ (moments.map((one) => one.requests));
    const summary = values.length
      ? `Newest ${count(values.at(-1))}; between ${count(Math.min(...values))} and ${count(Math.max(...values))}.`
      : "No batch has made requests to S3.";
    this.chart.set([moments.map((one) => one.at), values], { summary });
  }

  /** @param {any} content */
  show(content) {
    const { currency, tariff, seconds, by_class } = content;
    const classes = Object.entries(by_class ?? {});
    fill(
      this.place,
      h(
        "dl",
        { class: "tiles" },
        tile("Requests per batch", count(content.requests_per_batch), "mean"),
        tile("Requests per hour", count(content.requests_per_hour), `${count(content.writes_per_hour)} writes, ${count(content.reads_per_hour)} reads`),
        tile("Price per batch", money(content.per_batch, currency), tariff ? "mean" : "no tariff in the pipeline file"),
        tile("Price per hour", money(content.per_hour, currency), tariff ? "at the tariff below" : "no tariff in the pipeline file"),
      ),
      seconds ? h("p", { class: "soft" }, `Figures of the last ${duration(seconds)}${seconds < 3600 ? ", extrapolated to an hour" : ""}.`) : null,
      classes.length
        ? table({
            caption: "Mean requests of the newest batches by class of object",
            columns: ["Class", { title: "Requests per batch", number: true }],
            rows: classes.map(([name, value]) => [visible(name, 60), count(/** @type {number} */ (value))]),
            hidden: false,
          })
        : h("p", { class: "empty" }, "No batch with S3 requests has ended yet."),
      tariff
        ? table({
            caption: "Tariff",
            columns: ["Kind", { title: `Price (${visible(currency, 10)})`, number: true }],
            rows: Object.entries(tariff)
              .filter(([, value]) => typeof value === "number")
              .map(([name, value]) => [visible(name.replaceAll("_", " "), 60), String(value)]),
            hidden: false,
          })
        : null,
    );
  }

  redraw() {
    super.redraw();
    this.chart.redraw();
  }

  close() {
    super.close();
    this.chart.close();
  }
}

/**
 * @param {string} title
 * @param {string} value
 * @param {string} more
 */
function tile(title, value, more) {
  return h("div", { class: "tile" }, h("dt", null, title), h("dd", null, value), h("dd", null, more));
}
