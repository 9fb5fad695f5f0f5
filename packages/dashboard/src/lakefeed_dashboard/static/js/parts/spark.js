// Sparklines: small SVG charts of the last values; the page shows the newest value beside each sparkline.

import { s } from "../dom.js";

const WIDTH = 96;
const HEIGHT = 24;
const MOST = 60;

export class Sparkline {
  constructor() {
    /** @type {number[]} */
    this.values = [];
    this.line = s("polyline", { fill: "none", "stroke-width": "1.6", "stroke-linejoin": "round" });
    this.element = s(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true", focusable: "false" },
      this.line,
    );
  }

  /** @param {number | null | undefined} value */
  add(value) {
    this.values.push(value ?? 0);
    if (this.values.length > MOST) this.values.shift();
    if (this.values.length < 2) return;
    const most = Math.max(1e-9, ...this.values);
    const points = this.values.map((one, at) => {
      const x = WIDTH - (this.values.length - 1 - at) * (WIDTH / (MOST - 1));
      return `${x.toFixed(1)},${(HEIGHT - 2 - (one / most) * (HEIGHT - 4)).toFixed(1)}`;
    });
    this.line.setAttribute("points", points.join(" "));
  }
}
