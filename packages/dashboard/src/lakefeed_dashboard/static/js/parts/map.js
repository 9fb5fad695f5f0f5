// A map of circles by latitude and longitude; the area of a circle is its value. There are no tiles to download.

import { h, s, visible } from "../dom.js";
import { count } from "../format.js";

const WIDTH = 640;
const HEIGHT = 400;
const EDGE = 28;
const LARGEST = 22;
const MOST = 1_000;

/** @param {import("./panels.js").Panel} panel */
export function drawMap(panel) {
  const find = (/** @type {string | undefined} */ name, /** @type {RegExp} */ usual) => {
    const given = name ? panel.columns.indexOf(name) : -1;
    return given >= 0 ? given : panel.columns.findIndex((column) => usual.test(column));
  };
  const lat = find(panel.lat, /^lat/i);
  const lon = find(panel.lon, /^(lon|lng)/i);
  if (lat < 0 || lon < 0) return h("p", { class: "note warn" }, "The result has no columns of latitude and longitude.");
  const value = find(panel.y?.[0], /^(count|n|value|records|hits)$/i);
  const label = find(panel.label, /^(zip|name|label|place|city)$/i);
  const places = panel.rows
    .slice(0, MOST)
    // Number(null) is 0, so without this filter a place without coordinates would be drawn at 0° N, 0° E.
    .filter((row) => row[lat] !== null && row[lon] !== null)
    .map((row) => ({ lat: Number(row[lat]), lon: Number(row[lon]), value: value < 0 ? 1 : Number(row[value]) || 0, label: label < 0 ? "" : visible(row[label], 60) }))
    .filter((place) => Math.abs(place.lat) <= 90 && Math.abs(place.lon) <= 180);
  if (!places.length) return h("p", { class: "empty" }, "No row has coordinates.");
  const view = viewOf(places);
  const most = Math.max(1e-9, ...places.map((place) => place.value));
  const named = new Set([...places].sort((a, b) => b.value - a.value).slice(0, 6));
  return s(
    "svg",
    { class: "map", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Map of ${count(places.length)} places, the largest ${visible([...named][0].label, 60)} with ${count([...named][0].value)}` },
    lines(view),
    places.map((place) =>
      s(
        "circle",
        { cx: view.x(place.lon).toFixed(1), cy: view.y(place.lat).toFixed(1), r: Math.max(2, LARGEST * Math.sqrt(Math.max(0, place.value) / most)).toFixed(1) },
        s("title", null, `${place.label ? `${place.label}: ` : ""}${count(place.value)} (${place.lat.toFixed(3)}, ${place.lon.toFixed(3)})`),
      ),
    ),
    [...named].map((place) => s("text", { class: "strong", x: (view.x(place.lon) + 5).toFixed(1), y: (view.y(place.lat) + 4).toFixed(1) }, place.label)),
  );
}

/**
 * Fit all places into the picture; at the picture's centre, distances north and east have the same scale.
 * @param {{lat: number, lon: number}[]} places
 */
function viewOf(places) {
  const range = (/** @type {number[]} */ values) => [Math.min(...values), Math.max(...values)];
  const [south, north] = range(places.map((place) => place.lat));
  const [west, east] = range(places.map((place) => place.lon));
  const middle = { lat: (south + north) / 2, lon: (west + east) / 2 };
  const squeeze = Math.max(0.2, Math.cos((middle.lat * Math.PI) / 180));
  const wide = Math.max(0.02, (east - west) * squeeze);
  const high = Math.max(0.02, north - south);
  const scale = Math.min((WIDTH - 2 * EDGE) / wide, (HEIGHT - 2 * EDGE) / high);
  return {
    scale,
    squeeze,
    middle,
    x: (/** @type {number} */ lon) => WIDTH / 2 + (lon - middle.lon) * squeeze * scale,
    y: (/** @type {number} */ lat) => HEIGHT / 2 - (lat - middle.lat) * scale,
  };
}

/** @param {ReturnType<typeof viewOf>} view */
function lines(view) {
  const degrees = HEIGHT / view.scale;
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30].find((one) => degrees / one < 6) ?? 45;
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const drawn = [];
  for (let lat = Math.ceil((view.middle.lat - degrees / 2) / step) * step; lat < view.middle.lat + degrees / 2; lat += step) {
    const y = view.y(lat).toFixed(1);
    drawn.push(s("line", { x1: 0, x2: WIDTH, y1: y, y2: y }), s("text", { x: 4, y: Number(y) - 3 }, `${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? "S" : "N"}`));
  }
  const across = WIDTH / (view.scale * view.squeeze);
  for (let lon = Math.ceil((view.middle.lon - across / 2) / step) * step; lon < view.middle.lon + across / 2; lon += step) {
    const x = view.x(lon).toFixed(1);
    drawn.push(s("line", { y1: 0, y2: HEIGHT, x1: x, x2: x }), s("text", { x: Number(x) + 3, y: HEIGHT - 5 }, `${Math.abs(lon).toFixed(digits)}° ${lon < 0 ? "W" : "E"}`));
  }
  return drawn;
}
