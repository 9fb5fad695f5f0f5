// The state of a feed as a text, a colour, and a position in the list.

import { h } from "../dom.js";

/**
 * @param {any} feed an entry of the list, or its progress
 * @returns {{text: string, kind: string, order: number}} feeds that need attention have the lowest order
 */
export function stateOf(feed) {
  if (feed.reachable === false) return { text: "does not answer", kind: "bad", order: 0 };
  if (feed.hangs) return { text: "hangs", kind: "bad", order: 1 };
  if (feed.state === "failed") return { text: "failed", kind: "bad", order: 2 };
  if (feed.paused) return { text: feed.running ? "pausing" : "paused", kind: "warn", order: 3 };
  switch (feed.state) {
    case "working":
      return { text: "working", kind: "good", order: 6 };
    case "waiting":
      return { text: "waiting", kind: "calm", order: 7 };
    case "retrying":
      return { text: "waiting for a server", kind: "warn", order: 3 };
    case "stopping":
      return { text: "stopping", kind: "warn", order: 4 };
    case "starting":
      return { text: "starting", kind: "calm", order: 5 };
    default:
      return { text: String(feed.state ?? "unknown"), kind: "", order: 8 };
  }
}

/** @param {any} feed */
export function badge(feed) {
  const state = stateOf(feed);
  return h("span", { class: `badge ${state.kind}` }, state.text);
}

/**
 * Update a badge, unless it shows this state already.
 * @param {Element} element
 * @param {any} feed
 */
export function setBadge(element, feed) {
  const state = stateOf(feed);
  if (element.textContent === state.text) return;
  element.textContent = state.text;
  element.className = `badge ${state.kind}`;
}

/**
 * @param {{reason: string, by: string, at: string}} paused
 */
export function pauseText(paused) {
  return `Paused by ${paused.by}${paused.reason ? `: ${paused.reason}` : ""}`;
}

/** @param {any} error a text, or the error's parts */
export function errorText(error) {
  if (error === null || error === undefined) return "";
  if (typeof error === "string") return error;
  return `${error.what ?? error.error ?? "error"}${error.where ? ` (${error.where})` : ""}`;
}
