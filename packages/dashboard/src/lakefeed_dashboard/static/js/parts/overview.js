// The current state of a feed: figures, charts over time, the running batch, and the newest batches.

import { ofFeed } from "../api.js";
import { h, section, setText, table, fill } from "../dom.js";
import { ago, bytes, clock, count, duration, keep, kept, rate, short, zoneName } from "../format.js";
import { History, PHASES } from "../history.js";
import { Chart } from "./chart.js";

const WINDOWS = [
  { seconds: 900, title: "15 min" },
  { seconds: 3600, title: "1 hour" },
  { seconds: 21_600, title: "6 hours" },
  { seconds: 86_400, title: "24 hours" },
];
const TITLES = { plan: "plan", check: "check", write: "write", dead_letters: "dead letters", publish: "publish", log: "log", other: "other" };
const MOST_POINTS = 600;

export class OverviewPart {
  /** @param {string} feed */
  constructor(feed) {
    this.feed = feed;
    const seconds = Number(kept("lakefeed.window"));
    this.history = new History(WINDOWS.some((one) => one.seconds === seconds) ? seconds : 900);
    /** @type {any} */
    this.progress = null;
    this.tiles = new Map(
      ["Rate", "Lag", "Last batch", "Dead letters", "S3 requests", "Records in this run"].map((title) => [title, tile(title)]),
    );
    this.running = h("div", { class: "steps" });
    this.work = section("Batch at work", this.running);
    this.batches = h("div");
    this.range = h("div", { class: "range", role: "group", "aria-label": "Time span of the charts" });
    for (const one of WINDOWS) {
      const button = h("button", { type: "button", onclick: () => this.choose(one.seconds) }, one.title);
      button.dataset.seconds = String(one.seconds);
      this.range.append(button);
    }
    this.rates = new Chart({
      title: "Input and processing rate",
      x: "Time",
      isTime: true,
      series: [
        { title: "input", colour: 1, show: rate },
        { title: "processing", colour: 2, show: rate },
      ],
      axis: (value) => `${short(value)}/s`,
    });
    this.phases = new Chart({
      title: "Batch duration by phase",
      x: "Batch",
      stacked: true,
      series: PHASES.map((name, at) => ({ title: TITLES[/** @type {keyof typeof TITLES} */ (name)], colour: at + 1, show: duration })),
      axis: (value) => (value === 0 ? "0" : duration(value)),
    });
    this.lag = new Chart({ title: "Lag in records", x: "Time", isTime: true, series: [{ title: "lag", colour: 3, show: count }], axis: short });
    this.age = new Chart({
      title: "Age of the oldest record in the lag",
      x: "Time",
      isTime: true,
      series: [{ title: "age", colour: 4, show: duration }],
      axis: (value) => (value === 0 ? "0" : duration(value)),
    });
    this.charts = [this.rates, this.phases, this.lag, this.age];
    this.element = h(
      "div",
      { class: "steps" },
      h("dl", { class: "tiles" }, [...this.tiles.values()].map((one) => one.element)),
      this.work,
      this.range,
      h("div", { class: "cards" }, this.charts.map((chart) => chart.element)),
      section("Newest batches", this.batches),
    );
    this.timer = setInterval(() => this.draw(), 5_000);
    this.press();
  }

  async load() {
    const since = Date.now() / 1000 - this.history.seconds;
    try {
      this.history.load(await ofFeed(this.feed, `history?since=${since.toFixed(0)}&most=${MOST_POINTS}`));
    } catch {
      return; // Show no error here, because the view already shows that the feed does not answer.
    }
    this.draw();
    this.showBatches();
  }

  /** @param {number} seconds */
  choose(seconds) {
    this.history.seconds = seconds;
    keep("lakefeed.window", String(seconds));
    this.press();
    void this.load();
  }

  press() {
    for (const button of this.range.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.seconds) === this.history.seconds));
    }
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind === "batch") {
      this.history.addBatch(content);
      this.draw();
      this.showBatches();
    } else if (kind === "progress") {
      this.progress = content;
      this.showTiles(content);
      this.showRunning(content.running);
    }
  }

  draw() {
    const now = Math.max(Date.parse(this.progress?.taken_at ?? "") / 1000 || Date.now() / 1000, this.history.moments.at(-1)?.at ?? 0);
    const moments = this.history.recent(now);
    const x = moments.map((one) => one.at);
    // The charts of a young run begin at the run's first batch, so that they are not almost empty.
    const first = Math.max(now - this.history.seconds, Math.min(x[0] ?? now, now - 60));
    const range = /** @type {[number, number]} */ ([first, now]);
    const columns = (/** @type {(keyof import("../history.js").Moment)[]} */ ...names) => [x, ...names.map((name) => moments.map((one) => one[name]))];
    this.rates.set(columns("input", "processing"), { range, summary: compare(moments) });
    this.lag.set(columns("lag"), { range, summary: extent(moments.map((one) => one.lag), (value) => count(value, "records")) });
    this.age.set(columns("lagSeconds"), { range, summary: extent(moments.map((one) => one.lagSeconds), duration) });
    const phases = this.history.phases();
    this.phases.set(phases, { summary: longest(this.history.batches.at(-1)) });
  }

  /** @param {any} progress */
  showTiles(progress) {
    const batch = progress.last_batch;
    const requests = batch?.requests;
    const totals = progress.totals ?? {};
    const set = (/** @type {string} */ title, /** @type {string} */ value, /** @type {string} */ more) => this.tiles.get(title)?.set(value, more);
    set("Rate", rate(batch?.processing_rate), `input ${rate(batch?.input_rate)}`);
    set("Lag", count(progress.lag), progress.lag ? `oldest ${duration(progress.lag_seconds)}` : "records");
    set("Last batch", duration(batch?.seconds), batch ? `${count(batch.records)} records, ${ago(batch.finished_at, progress.taken_at)}` : "none yet");
    set("Dead letters", count(totals.dead_letters), `in this run; ${count(totals.skipped)} skipped${totals.left_out ? `; ${count(totals.left_out)} rows without some fields${totals.left_out_field ? `, such as ${totals.left_out_field}` : ""}` : ""}`);
    const budget = requests?.budget ? ` of ${count(requests.budget)}` : "";
    set("S3 requests", requests ? `${count(requests.total)}${budget}` : "–", requests ? `last batch; ${bytes(requests.bytes_out)} out` : "last batch");
    set("Records in this run", short(totals.records), `${count(totals.batches)} batches`);
  }

  /** @param {any} running */
  showRunning(running) {
    this.work.hidden = !running;
    if (!running) return;
    if (!this.running.firstChild) {
      this.bar = /** @type {HTMLProgressElement} */ (h("progress", { max: "1", "aria-label": "Part of the batch that is done" }));
      this.doing = h("p");
      fill(this.running, this.doing, this.bar);
    }
    const done = running.offsets && running.records ? running.records / running.offsets : running.tasks ? running.tasks_done / running.tasks : null;
    const parts = [
      `Batch ${running.batch} has run for ${duration(running.seconds)}`,
      running.phase ? `phase ${running.phase}` : "",
      running.tasks ? `${count(running.tasks_done)} of ${count(running.tasks)} tasks` : "",
      running.records ? `${count(running.records)} of ${count(running.offsets)} records (${rate(running.rate)})` : running.offsets ? `${count(running.offsets)} records` : "",
      running.seconds_left === null || running.seconds_left === undefined ? "" : `${duration(running.seconds_left)} left`,
    ];
    setText(/** @type {Element} */ (this.doing), parts.filter(Boolean).join(" · "));
    const bar = /** @type {HTMLProgressElement} */ (this.bar);
    if (done === null) bar.removeAttribute("value");
    else bar.value = Math.min(1, done);
  }

  showBatches() {
    const batches = this.history.batches.slice(-8).reverse();
    fill(
      this.batches,
      batches.length
        ? table({
            caption: "Newest batches",
            columns: ["Batch", `Ended (${zoneName()})`, ...["Records", "Rows", "Duration", "Rate", "Dead letters", "S3"].map((title) => ({ title, number: true }))],
            rows: batches.map((batch) => [
              String(batch.batch),
              clock(new Date(batch.finished_at)),
              count(batch.records),
              count(batch.rows),
              duration(batch.seconds),
              rate(batch.processing_rate),
              count(batch.dead_letters),
              count(batch.requests?.total),
            ]),
          })
        : h("p", { class: "empty" }, "No batch has ended yet."),
    );
  }

  redraw() {
    this.charts.forEach((chart) => chart.redraw());
    this.showBatches();
  }

  close() {
    clearInterval(this.timer);
    this.charts.forEach((chart) => chart.close());
  }
}

/** @param {string} title */
function tile(title) {
  const value = h("dd", null, "–");
  const more = h("dd", null, "");
  return {
    element: h("div", { class: "tile", "data-tile": title }, h("dt", null, title), value, more),
    set: (/** @type {string} */ text, /** @type {string} */ second) => {
      setText(value, text);
      setText(more, second);
    },
  };
}

/** @param {import("../history.js").Moment[]} moments */
function compare(moments) {
  const last = moments.at(-1);
  if (!last) return "No batch has ended in this time.";
  const word = (last.processing ?? 0) >= (last.input ?? 0) ? "keeps up" : "falls behind";
  return `Newest: input ${rate(last.input)}, processing ${rate(last.processing)}; the feed ${word}.`;
}

/**
 * @param {(number | null)[]} values
 * @param {(value: number | null | undefined) => string} show
 */
function extent(values, show) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return "Not known in this time.";
  return `Now ${show(known.at(-1))}; between ${show(Math.min(...known))} and ${show(Math.max(...known))} in this time.`;
}

/** @param {any} batch */
function longest(batch) {
  if (!batch) return "No batch has ended yet.";
  const phases = PHASES.map((name) => ({ name, seconds: batch.phases?.[name] ?? 0 })).sort((a, b) => b.seconds - a.seconds);
  return `Batch ${batch.batch} took ${duration(batch.seconds)}, most of it in ${TITLES[/** @type {keyof typeof TITLES} */ (phases[0].name)]} (${duration(phases[0].seconds)}).`;
}
