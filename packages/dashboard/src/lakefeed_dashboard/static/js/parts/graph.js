// The pipeline as a graph: topics at one end, sinks at the other, with the rates of the last minute.

import { fill, foreign, h, s, table, visible } from "../dom.js";
import { rate } from "../format.js";
import { DetailPart } from "./detail.js";

const BOX = { width: 190, height: 62 };
const GAP = { along: 52, across: 18 };
const NARROW = 620;
const LONGEST = 20;

/** @typedef {{id: string, label: string, kind: string, rate: number | null, detail: string, x: number, y: number}} Node */

export class GraphPart extends DetailPart {
  /** @param {string} feed */
  constructor(feed) {
    super(feed, { title: "Pipeline", what: "graph", every: 5_000 });
  }

  /** @param {{nodes: Node[], edges: [string, string][]}} content */
  show({ nodes, edges }) {
    if (!nodes.length) {
      fill(this.place, h("p", { class: "empty" }, "The driver has not sent the pipeline yet."));
      return;
    }
    fill(this.place, draw(nodes, edges, this.element.clientWidth < NARROW), h("details", null, h("summary", null, "The same as a table"), rows(nodes, edges)));
  }
}

/**
 * Place nodes by their longest path from a source, and draw them: from left to right, or downwards on a narrow page.
 * @param {Node[]} nodes
 * @param {[string, string][]} edges
 * @param {boolean} isNarrow
 */
function draw(nodes, edges, isNarrow) {
  const layers = layersOf(nodes, edges);
  const most = Math.max(...layers.map((layer) => layer.length));
  const [along, across] = isNarrow ? [BOX.height + 34, BOX.width + GAP.across] : [BOX.width + GAP.along, BOX.height + GAP.across];
  const width = isNarrow ? most * across - GAP.across : layers.length * along - GAP.along;
  const height = isNarrow ? layers.length * along - 34 : most * across - GAP.across;
  layers.forEach((layer, depth) => {
    const start = ((most - layer.length) * across) / 2;
    layer.forEach((node, at) => {
      [node.x, node.y] = isNarrow ? [start + at * across, depth * along] : [depth * along, start + at * across];
    });
  });
  const places = new Map(nodes.map((node) => [node.id, node]));
  const lines = edges
    .map(([from, to]) => [places.get(from), places.get(to)])
    .filter(([from, to]) => from && to)
    .map(([from, to]) => line(/** @type {Node} */ (from), /** @type {Node} */ (to), isNarrow));
  const words = nodes.map((node) => `${visible(node.label, 60)} ${rate(node.rate)}`).join(", ");
  const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, s("path", { class: "arrow", d: "M0 0 8 4 0 8z" }));
  return h(
    "div",
    { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Pipeline as a graph" },
    s(
      "svg",
      { class: "graph", viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, role: "img", "aria-label": `Pipeline: ${words}` },
      s("defs", null, arrow),
      lines,
      nodes.map(box),
    ),
  );
}

/**
 * @param {Node[]} nodes
 * @param {[string, string][]} edges
 */
function layersOf(nodes, edges) {
  const depth = new Map(nodes.map((node) => [node.id, 0]));
  // Without the limit, a cycle would loop forever; the longest path has fewer edges than there are nodes.
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const [from, to] of edges) {
      const next = (depth.get(from) ?? 0) + 1;
      if (depth.has(to) && next > (depth.get(to) ?? 0) && next < nodes.length) {
        depth.set(to, next);
        moved = true;
      }
    }
    if (!moved) break;
  }
  /** @type {Node[][]} */
  const layers = [];
  for (const node of nodes) (layers[depth.get(node.id) ?? 0] ??= []).push(node);
  return layers.filter(Boolean);
}

/** @param {Node} node */
function box(node) {
  const label = visible(node.label, 200);
  const short = label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label;
  return s(
    "g",
    { transform: `translate(${node.x} ${node.y})` },
    s("title", null, [label, visible(node.detail || "", 300)].filter(Boolean).join("\n")),
    s("rect", { class: `box ${/^[a-z_]+$/.test(node.kind) ? node.kind : ""}`, width: BOX.width, height: BOX.height, rx: 9 }),
    s("text", { class: "minor", x: 12, y: 18 }, visible(node.kind, 24).replaceAll("_", " ")),
    s("text", { class: "strong", x: 12, y: 36, direction: "ltr", "unicode-bidi": "isolate" }, short),
    s("text", { class: "minor", x: 12, y: 53 }, node.rate === null ? "" : rate(node.rate)),
  );
}

/**
 * @param {Node} from
 * @param {Node} to
 * @param {boolean} isNarrow
 */
function line(from, to, isNarrow) {
  const [x1, y1, x2, y2] = isNarrow
    ? [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y]
    : [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const middle = isNarrow ? `${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2}` : `${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2}`;
  return s("path", { d: `M${x1} ${y1}C${middle} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
}

/**
 * @param {Node[]} nodes
 * @param {[string, string][]} edges
 */
function rows(nodes, edges) {
  const labels = new Map(nodes.map((node) => [node.id, visible(node.label, 60)]));
  return table({
    caption: "Parts of the pipeline",
    columns: ["Part", "Kind", { title: "Rate", number: true }, "Goes to", "Detail"],
    rows: nodes.map((node) => [
      foreign(node.label, 120),
      visible(node.kind, 24).replaceAll("_", " "),
      rate(node.rate),
      edges.filter(([from]) => from === node.id).map(([, to]) => labels.get(to) ?? "").join(", "),
      foreign(node.detail || "", 200),
    ]),
  });
}
