// Query panels of the pipeline file: their newest results, as bars, a line, a table or a map.

import { ApiError, ofFeed } from "../api.js";
import { fill, foreign, h, section, table, visible } from "../dom.js";
import { count, short, time, zoneName } from "../format.js";
import { Chart } from "./chart.js";
import { bar } from "./lag.js";
import { drawMap } from "./map.js";

const MOST_ROWS = 100;
/** The server's format of times. Date.parse would read a zip code as a year. */
const TIME = /^\d{4}-\d{2}-\d{2}(?:$|[T ]\d{2}:\d{2})/;

/**
 * @typedef {object} Panel
 * @property {string} name
 * @property {string} title
 * @property {"bar" | "line" | "table" | "map"} chart
 * @property {string[]} columns
 * @property {any[][]} rows
 * @property {string} [x]
 * @property {string[]} [y]
 * @property {string} [label]
 * @property {string} [lat]
 * @property {string} [lon]
 * @property {boolean} [truncated]
 * @property {string | null} taken_at
 * @property {string | null} error
 */

export class PanelsPart {
  /** @param {string} feed */
  constructor(feed) {
    this.feed = feed;
    /** @type {Map<string, {element: HTMLElement, body: HTMLElement, state: HTMLElement, text: string, chart: Chart | null, panel: Panel}>} */
    this.shown = new Map();
    this.empty = h("p", { class: "empty" }, "Loading …");
    this.cards = h("div", { class: "cards" });
    this.element = h("div", { class: "steps" }, this.empty, this.cards);
  }

  async load() {
    try {
      this.show(await ofFeed(this.feed, "panels"));
    } catch (error) {
      this.empty.textContent = error instanceof ApiError ? error.text : "the panels cannot be shown";
      this.empty.hidden = false;
    }
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind === "panels") this.show(content);
  }

  /** @param {{panels: Panel[]}} content */
  show({ panels }) {
    this.empty.hidden = panels.length > 0;
    this.empty.textContent = panels.length ? "" : "The pipeline file has no panels; the dashboard's documentation explains how to add some.";
    for (const panel of panels) {
      let card = this.shown.get(panel.name);
      if (!card) {
        const body = h("div", { class: "steps" });
        const state = h("p", { class: "soft" });
        card = { element: section(visible(panel.title, 100), body, state), body, state, text: "", chart: null, panel };
        this.shown.set(panel.name, card);
        this.cards.append(card.element);
      }
      card.state.textContent = stateText(panel);
      card.state.className = panel.error ? "note warn" : "soft";
      const text = JSON.stringify([panel.columns, panel.rows]);
      card.panel = panel;
      if (text === card.text) continue;
      card.text = text;
      card.element.dataset.rows = String(panel.rows?.length ?? 0);
      this.draw(card);
    }
  }

  /** @param {{body: HTMLElement, chart: Chart | null, panel: Panel}} card */
  draw(card) {
    const { panel } = card;
    if (panel.chart === "line" && panel.rows?.length) {
      if (!card.chart) {
        card.chart = lineChart(panel);
        fill(card.body, card.chart.element);
      }
      const { data, isTime } = lineData(panel);
      card.chart.options.isTime = isTime;
      card.chart.set(data, { summary: `${count(panel.rows.length)} values` });
      return;
    }
    card.chart?.close();
    card.chart = null;
    if (!panel.rows?.length) fill(card.body, h("p", { class: "empty" }, panel.taken_at ? "No rows." : "Not queried yet."));
    else if (panel.chart === "bar") fill(card.body, bars(panel));
    else if (panel.chart === "map") fill(card.body, drawMap(panel), h("details", null, h("summary", null, "The same as a table"), plain(panel)));
    else fill(card.body, plain(panel));
  }

  redraw() {
    for (const card of this.shown.values()) {
      card.state.textContent = stateText(card.panel);
      if (card.chart) card.chart.redraw();
    }
  }

  close() {
    for (const card of this.shown.values()) card.chart?.close();
  }
}

/** @param {Panel} panel */
function stateText(panel) {
  const when = panel.taken_at ? `As of ${time(panel.taken_at)} ${zoneName()}` : "Not queried yet";
  const more = panel.truncated ? " · there are more rows" : "";
  return panel.error ? `${visible(panel.error, 400)} · ${when}` : when + more;
}

/**
 * Return the index of the column for x (that of `x` or `label`, else 0), and of the columns of `y` (else all columns of numbers).
 * @param {Panel} panel
 */
function columnsOf(panel) {
  const at = (/** @type {string | undefined} */ name) => (name ? panel.columns.indexOf(name) : -1);
  const x = Math.max(0, at(panel.x), at(panel.label));
  const named = (panel.y ?? []).map(at).filter((one) => one >= 0);
  const numbers = panel.columns.map((_, one) => one).filter((one) => one !== x && panel.rows.some((row) => typeof row[one] === "number"));
  return { x, values: named.length ? named : numbers };
}

/** @param {Panel} panel */
function bars(panel) {
  const { x, values } = columnsOf(panel);
  const value = values[0] ?? -1;
  const rows = panel.rows.slice(0, MOST_ROWS);
  const most = Math.max(1e-9, ...rows.map((row) => Number(row[value]) || 0));
  return table({
    caption: visible(panel.title, 100),
    columns: [visible(panel.columns[x], 60), "", ...values.map((one) => ({ title: visible(panel.columns[one], 60), number: true }))],
    rows: rows.map((row) => [cell(row[x]), bar(Number(row[value]) || 0, most), ...values.map((one) => cell(row[one]))]),
  });
}

/** @param {Panel} panel */
function plain(panel) {
  const isNumber = panel.columns.map((_, at) => panel.rows.some((row) => typeof row[at] === "number"));
  return table({
    caption: visible(panel.title, 100),
    columns: panel.columns.map((name, at) => ({ title: visible(name, 60), number: isNumber[at] })),
    rows: panel.rows.slice(0, MOST_ROWS).map((row) => row.map(cell)),
  });
}

/** @param {any} value */
function cell(value) {
  return typeof value === "number" ? count(value) : foreign(value, 200);
}

/** @param {Panel} panel */
function lineChart(panel) {
  const { x, values } = columnsOf(panel);
  return new Chart({
    title: visible(panel.title, 100),
    x: visible(panel.columns[x], 60),
    isTime: lineData(panel).isTime,
    series: values.slice(0, 7).map((one, at) => ({ title: visible(panel.columns[one], 60), colour: at + 1, show: (value) => count(value) })),
    axis: short,
    bare: true,
  });
}

/** @param {Panel} panel */
function lineData(panel) {
  const { x, values } = columnsOf(panel);
  const isTime = panel.rows.every((row) => typeof row[x] === "string" && TIME.test(row[x]) && !Number.isNaN(secondsOf(row[x])));
  const place = (/** @type {any} */ value, /** @type {number} */ at) => (isTime ? secondsOf(value) : typeof value === "number" ? value : at);
  const rows = panel.rows.map((row, at) => ({ row, at: place(row[x], at) })).sort((a, b) => a.at - b.at);
  // A number may be a text, because JavaScript cannot represent every decimal.
  const number = (/** @type {any} */ value) => (value !== null && value !== "" && Number.isFinite(Number(value)) ? Number(value) : null);
  return { isTime, data: [rows.map((one) => one.at), ...values.slice(0, 7).map((column) => rows.map((one) => number(one.row[column])))] };
}

/**
 * Return a time as seconds since 1970; a time without a zone is UTC, like the axis.
 * @param {string} text
 */
function secondsOf(text) {
  const isBare = /[T ][\d:.]+$/.test(text);
  return Date.parse(isBare ? `${text.replace(" ", "T")}Z` : text) / 1000;
}
