// Charts over time or batches, drawn by uPlot. A sentence and a table give the same values as text.

import { fill, h, section, setText, table } from "../dom.js";
import { clock, zoneIsLocal } from "../format.js";

/**
 * @typedef {object} Series
 * @property {string} title
 * @property {number} colour 1 to 7
 * @property {(value: number | null | undefined) => string} show
 */
/**
 * @typedef {object} Options
 * @property {string} title
 * @property {Series[]} series
 * @property {string} x title of the first column
 * @property {boolean} [isTime] whether x is seconds since 1970
 * @property {boolean} [stacked] draw stacked bars, the first series lowest
 * @property {(value: number) => string} axis
 * @property {boolean} [bare] draw no card and no heading
 */

const HEIGHT = 210;
const TABLE_ROWS = 30;

/** @param {string} name */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Chart {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    /** @type {(number | null)[][]} */
    this.data = [[], ...options.series.map(() => [])];
    /** @type {[number, number] | null} */
    this.range = null;
    /** @type {any} */
    this.plot = null;
    this.values = options.series.map(() => h("output", { for: "" }, ""));
    this.legend = h(
      "ul",
      { class: "legend" },
      options.series.map((one, at) => h("li", null, h("i", { class: `c${one.colour}`, "aria-hidden": "true" }), one.title, this.values[at])),
    );
    this.at = h("li", { class: "soft" });
    this.legend.append(this.at);
    this.area = h("div", { class: "plot", role: "img", "aria-label": `Chart: ${options.title}` });
    this.summary = h("p", { class: "summary" });
    this.rows = h("div");
    this.details = /** @type {HTMLDetailsElement} */ (
      h("details", { ontoggle: () => this.showRows() }, h("summary", null, "Values as a table"), this.rows)
    );
    const content = h("div", { class: "chart" }, this.legend, this.area, this.summary, this.details);
    this.element = options.bare ? content : section(options.title, content);
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.area);
  }

  /**
   * Show the values: a column for x, then a column per series.
   * @param {(number | null)[][]} data
   * @param {{range?: [number, number] | null, summary?: string}} [more]
   */
  set(data, { range = null, summary = "" } = {}) {
    this.data = data;
    this.range = range;
    this.element.dataset.points = String(data[0].length);
    setText(this.summary, summary);
    this.area.setAttribute("aria-label", `Chart: ${this.options.title}. ${summary}`);
    if (this.plot) this.plot.setData(this.drawn());
    else this.resize();
    if (this.plot?.cursor.idx == null) this.readout(data[0].length - 1, false);
    this.showRows();
  }

  /** Return the values to draw; for stacked bars, the cumulative sums of the series, the highest sum first. */
  drawn() {
    if (!this.options.stacked) return this.data;
    const [x, ...columns] = this.data;
    const sums = columns.map((_, at) => x.map((_, row) => columns.slice(0, at + 1).reduce((sum, column) => sum + (column[row] ?? 0), 0)));
    return [x, ...sums.reverse()];
  }

  resize() {
    const width = Math.floor(this.area.clientWidth);
    if (width < 50) return;
    const uplot = /** @type {any} */ (window).uPlot;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    // uPlot does not load if the browser's language is invalid, as in a system without a locale.
    else if (uplot) this.plot = new uplot(this.settings(width), this.drawn(), this.area);
    else setText(this.area, "This browser cannot draw the chart; its values are in the table below.");
  }

  redraw() {
    this.plot?.destroy();
    this.plot = null;
    this.resize();
    this.readout(this.data[0].length - 1, false);
    this.showRows();
  }

  /** @param {number} width */
  settings(width) {
    const { series, isTime, stacked, axis } = this.options;
    const uplot = /** @type {any} */ (window).uPlot;
    const line = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const drawn = stacked ? [...series].reverse() : series;
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: !stacked } },
      scales: {
        x: { time: Boolean(isTime), range: (/** @type {any} */ _, /** @type {number} */ least, /** @type {number} */ most) => this.range ?? spread(least, most, stacked) },
        y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, most > 0 ? most * 1.08 : 1] },
      },
      series: [
        {},
        ...drawn.map((one) => ({
          label: one.title,
          stroke: colour(`--chart-${one.colour}`),
          width: stacked ? 0 : 1.8,
          fill: stacked ? colour(`--chart-${one.colour}`) : undefined,
          paths: stacked ? uplot.paths.bars({ size: [0.82, 26], gap: 1 }) : undefined,
          points: { show: stacked ? false : undefined, size: 5 },
          spanGaps: false,
        })),
      ],
      axes: [
        { ...line, size: 30, values: (/** @type {any} */ _, /** @type {number[]} */ at, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number} */ step) => at.map((one) => this.tick(one, step)) },
        { ...line, size: 64, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(axis) },
      ],
      tzDate: (/** @type {number} */ seconds) => (zoneIsLocal() ? new Date(seconds * 1000) : uplot.tzDate(new Date(seconds * 1000), "UTC")),
      hooks: { setCursor: [(/** @type {any} */ plot) => this.readout(plot.cursor.idx ?? this.data[0].length - 1, plot.cursor.idx != null)] },
    };
  }

  /**
   * @param {number} value
   * @param {number} step
   */
  tick(value, step) {
    if (!this.options.isTime) return Number.isInteger(value) ? String(value) : "";
    return clock(new Date(value * 1000), { seconds: step < 60, day: step >= 86_400 });
  }

  /**
   * @param {number} row
   * @param {boolean} isPointed
   */
  readout(row, isPointed) {
    this.options.series.forEach((one, at) => setText(this.values[at], row < 0 ? "" : one.show(this.data[at + 1]?.[row])));
    setText(this.at, isPointed && row >= 0 ? `at ${this.nameOf(row)}` : "");
  }

  /** @param {number} row */
  nameOf(row) {
    const value = /** @type {number} */ (this.data[0][row]);
    return this.options.isTime ? clock(new Date(value * 1000), { day: false }) : `${this.options.x.toLowerCase()} ${value}`;
  }

  showRows() {
    if (!this.details.open) return;
    const first = Math.max(0, this.data[0].length - TABLE_ROWS);
    const rows = this.data[0]
      .map((_, row) => row)
      .slice(first)
      .reverse();
    fill(
      this.rows,
      table({
        caption: `${this.options.title}, the newest ${rows.length} values`,
        columns: [this.options.x, ...this.options.series.map((one) => ({ title: one.title, number: true }))],
        rows: rows.map((row) => [this.nameOf(row), ...this.options.series.map((one, at) => one.show(this.data[at + 1]?.[row]))]),
      }),
    );
  }

  close() {
    this.watcher.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

/**
 * @param {number} least
 * @param {number} most
 * @param {boolean | undefined} stacked
 * @returns {[number, number]}
 */
function spread(least, most, stacked) {
  if (least == null || most == null) return [0, 1];
  if (stacked) return [least - 0.6, most + 0.6];
  return least === most ? [least - 1, most + 1] : [least, most];
}
