// The history of one feed in the page: the points of the charts, and the newest batches in full.

const MOST_POINTS = 1500;
const MOST_BATCHES = 100;
/** Phases that do not overlap, in their order in a batch. "add" is left out, because it is a sum of phases, and "rows" and "write …", because they are parts of a phase. */
export const PHASES = ["plan", "check", "write", "dead_letters", "publish", "log", "other"];

/**
 * @typedef {object} Moment
 * @property {number} at seconds since 1970
 * @property {number | null} input
 * @property {number | null} processing
 * @property {number | null} lag
 * @property {number | null} lagSeconds
 * @property {number | null} requests per batch
 */

export class History {
  /** @param {number} seconds the time that the charts show */
  constructor(seconds) {
    this.seconds = seconds;
    /** @type {Moment[]} */
    this.moments = [];
    /** @type {any[]} */
    this.batches = [];
    this.before = 0;
  }

  /** @param {{points: any[], batches: any[]}} content */
  load({ points, batches }) {
    this.moments = [];
    this.before = 0;
    for (const point of points) this.addPoint(point);
    this.batches = batches.slice(-MOST_BATCHES);
  }

  /** @param {any} point */
  addPoint(point) {
    const at = Date.parse(point.at) / 1000;
    const since = this.before ? at - this.before : point.seconds;
    this.before = at;
    this.moments.push({
      at,
      input: since > 0 ? point.records / since : null,
      processing: point.seconds > 0 ? point.records / point.seconds : null,
      lag: point.lag,
      lagSeconds: point.lag_seconds,
      requests: point.requests === null || point.requests === undefined ? null : point.requests / Math.max(1, point.batches),
    });
  }

  /** @param {any} batch */
  addBatch(batch) {
    const last = this.batches.at(-1);
    if (last && last.batch === batch.batch && last.finished_at === batch.finished_at) return;
    this.batches.push(batch);
    if (this.batches.length > MOST_BATCHES) this.batches.shift();
    this.addPoint({ ...batch, at: batch.finished_at, batches: 1, requests: batch.requests?.total ?? null });
    if (this.moments.length > MOST_POINTS) this.thin();
  }

  /** Drop every second point of the older half, so that a page that is open for days does not grow. */
  thin() {
    const half = MOST_POINTS / 2;
    this.moments = this.moments.filter((_, at) => at > half || at % 2 === 0);
  }

  /**
   * Return the points that the charts show; `now` is the server's time.
   * @param {number} now
   */
  recent(now) {
    return this.moments.filter((moment) => moment.at >= now - this.seconds);
  }

  /** Return the seconds per phase of the newest batches; "other" is the time outside all phases. */
  phases() {
    const batches = this.batches.slice(-60);
    const columns = PHASES.map((name) =>
      batches.map((batch) => (name === "other" ? rest(batch) : (batch.phases?.[name] ?? 0))),
    );
    // A new checkpoint starts the batch ids over. The ids then do not rise, and the chart numbers the batches from 1.
    const isRising = batches.every((batch, at) => at === 0 || batch.batch > batches[at - 1].batch);
    return [batches.map((batch, at) => (isRising ? batch.batch : at + 1)), ...columns];
  }
}

/** @param {any} batch */
function rest(batch) {
  const known = PHASES.reduce((sum, name) => sum + (batch.phases?.[name] ?? 0), 0);
  return Math.max(0, batch.seconds - known);
}
