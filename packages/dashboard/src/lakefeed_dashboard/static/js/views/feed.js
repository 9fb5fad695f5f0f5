// One feed: its state, its buttons, and one part of its details.

import { ApiError, isOperator, ofFeed } from "../api.js";
import { announce, fill, foreign, h, setText, visible } from "../dom.js";
import { ago, time, zoneName } from "../format.js";
import { ACTIONS, actionButton } from "../parts/actions.js";
import { CostsPart } from "../parts/costs.js";
import { DeadLettersPart } from "../parts/dead_letters.js";
import { EventsPart } from "../parts/events.js";
import { GraphPart } from "../parts/graph.js";
import { LagPart } from "../parts/lag.js";
import { OverviewPart } from "../parts/overview.js";
import { PanelsPart } from "../parts/panels.js";
import { SchemasPart } from "../parts/schemas.js";
import { errorText, pauseText, setBadge, stateOf } from "../parts/state.js";
import { TablePart } from "../parts/table.js";

/**
 * @typedef {object} Part
 * @property {HTMLElement} element
 * @property {() => void} load
 * @property {(kind: string, content: any) => void} [onEvent]
 * @property {() => void} [redraw]
 * @property {() => void} [close]
 */

/** @type {{id: string, title: string, make: (feed: string) => Part}[]} */
const PARTS = [
  { id: "", title: "Overview", make: (feed) => new OverviewPart(feed) },
  { id: "lag", title: "Lag", make: (feed) => new LagPart(feed) },
  { id: "dead-letters", title: "Dead letters", make: (feed) => new DeadLettersPart(feed) },
  { id: "pipeline", title: "Pipeline", make: (feed) => new GraphPart(feed) },
  { id: "table", title: "Table", make: (feed) => new TablePart(feed) },
  { id: "schema", title: "Schema", make: (feed) => new SchemasPart(feed) },
  { id: "requests", title: "S3 requests", make: (feed) => new CostsPart(feed) },
  { id: "panels", title: "Panels", make: (feed) => new PanelsPart(feed) },
  { id: "events", title: "Events", make: (feed) => new EventsPart(feed) },
];

export class FeedView {
  /**
   * @param {HTMLElement} main
   * @param {string} feed
   * @param {string[]} path
   */
  constructor(main, feed, path) {
    this.feed = feed;
    /** @type {any} */
    this.progress = null;
    this.announced = "";
    this.badge = h("span", { class: "badge" }, "…");
    this.facts = h("dl", { class: "facts" });
    this.notes = h("div", { class: "steps" });
    this.buttons = h("div", { class: "actions", role: "group", "aria-label": "Control this feed" });
    this.tabs = h("ul");
    this.place = h("div", { class: "steps" });
    this.missing = h("p", { class: "note bad", hidden: true });
    fill(
      main,
      h("p", null, h("a", { href: "#/" }, "← All feeds")),
      h("div", { class: "head" }, h("div", null, h("div", { class: "title" }, h("h1", null, foreign(feed, 150)), this.badge), this.facts), this.buttons),
      this.missing,
      this.notes,
      h("nav", { class: "tabs", "aria-label": "Parts of this feed" }, this.tabs),
      this.place,
    );
    /** @type {Part} */
    this.part = this.open(path);
    /** @type {Map<string, HTMLButtonElement>} */
    this.actions = new Map();
    if (isOperator()) {
      for (const name of ["pause", "resume", "upkeep", "change", "stop"]) {
        const button = actionButton(feed, ACTIONS[name]);
        this.actions.set(name, button);
        this.buttons.append(button);
      }
    }
  }

  /** @param {string[]} path */
  open(path) {
    const wanted = PARTS.find((part) => part.id === (path[0] ?? "")) ?? PARTS[0];
    this.id = wanted.id;
    document.title = `${visible(this.feed, 60)}${wanted.id ? `: ${wanted.title.toLowerCase()}` : ""} · lakefeed`;
    const base = `#/feed/${encodeURIComponent(this.feed)}`;
    fill(
      this.tabs,
      PARTS.map((part) =>
        h("li", null, h("a", { href: part.id ? `${base}/${part.id}` : base, "aria-current": part === wanted ? "page" : null }, part.title)),
      ),
    );
    const part = wanted.make(this.feed);
    fill(this.place, part.element);
    return part;
  }

  /**
   * Go to another part of the same feed.
   * @param {string[]} path
   */
  go(path) {
    if ((path[0] ?? "") === this.id) return true;
    this.part.close?.();
    this.part = this.open(path);
    /** @type {HTMLElement | null} */ (this.tabs.querySelector("[aria-current]"))?.focus();
    this.part.load();
    if (this.progress) this.part.onEvent?.("progress", this.progress);
    return true;
  }

  async load() {
    this.part.load();
    try {
      this.show(await ofFeed(this.feed, "progress"));
    } catch (error) {
      setText(this.missing, error instanceof ApiError ? error.text : "the feed cannot be shown");
      this.missing.hidden = false;
    }
  }

  /**
   * @param {string} kind
   * @param {any} content
   */
  onEvent(kind, content) {
    if (kind === "progress") this.show(content);
    else this.part.onEvent?.(kind, content);
  }

  /** @param {any} progress */
  show(progress) {
    this.progress = progress;
    this.missing.hidden = true;
    setBadge(this.badge, progress);
    this.showFacts(progress);
    this.showNotes(progress);
    this.actions.get("pause")?.toggleAttribute("hidden", Boolean(progress.paused));
    this.actions.get("resume")?.toggleAttribute("hidden", !progress.paused);
    const isOver = ["ended", "failed", "stopping"].includes(progress.state);
    for (const button of this.actions.values()) button.disabled = isOver;
    const { text } = stateOf(progress);
    // "working" and "waiting" alternate with every batch, so screen readers hear neither.
    const state = ["working", "waiting"].includes(text) ? "running" : text;
    if (this.announced && state !== this.announced) announce(`${visible(this.feed, 60)}: ${state}`);
    this.announced = state;
    this.part.onEvent?.("progress", progress);
  }

  /** @param {any} progress */
  showFacts(progress) {
    const driver = progress.driver ?? {};
    const facts = [
      ["into", visible(progress.sink || "–", 120)],
      ["driver", `process ${driver.pid ?? "–"} on ${visible(driver.host, 80)}${driver.version ? `, lakefeed ${driver.version}` : ""}`],
      ["since", `${time(progress.started_at, { day: true })} ${zoneName()}`],
      ["fence", visible(progress.fence, 80)],
      ["last commit", ago(progress.last_commit_at, progress.taken_at)],
    ];
    if (progress.restarts) facts.push(["restarts of the query", String(progress.restarts)]);
    // Another driver may send any text, so only http and https addresses become links.
    const pages = /^https?:\/\/[^\s]+$/.test(driver.spark_ui ?? "") ? visible(driver.spark_ui, 200) : "";
    if (pages) facts.push(["Spark's UI", pages]);
    if (this.facts.children.length !== facts.length) {
      fill(this.facts, facts.map(([name]) => h("div", null, h("dt", null, name), h("dd", null))));
    }
    facts.forEach(([, text], at) => setText(/** @type {Element} */ (this.facts.children[at].lastElementChild), text));
    const last = this.facts.lastElementChild?.lastElementChild;
    if (pages && last && !last.querySelector("a")) {
      fill(last, h("a", { href: pages, target: "_blank", rel: "noreferrer noopener" }, pages));
    }
  }

  /** @param {any} progress */
  showNotes(progress) {
    /** @type {[string, string][]} */
    const notes = [];
    if (progress.hangs) notes.push(["bad", `The driver hangs: its loop has not turned since ${time(progress.alive_at)} ${zoneName()}.`]);
    if (progress.paused) notes.push(["warn", `${pauseText(progress.paused)}, since ${time(progress.paused.at)} ${zoneName()}`]);
    if (progress.waits_for) notes.push(["warn", `Waiting for a server: ${progress.waits_for}`]);
    for (const [sink, why] of Object.entries(progress.paused_sinks ?? {})) notes.push(["warn", `The sink ${sink} waits: ${why}`]);
    const error = progress.last_error;
    if (error) notes.push(["bad", `${errorText(error)}${error.hint ? `. Next: ${error.hint}` : ""} (${time(error.at)} ${zoneName()})`]);
    const texts = notes.map(([kind, text]) => `${kind} ${text}`).join("\n");
    if (this.notes.dataset.texts === texts) return;
    this.notes.dataset.texts = texts;
    this.notes.hidden = !notes.length;
    fill(this.notes, notes.map(([kind, text]) => h("p", { class: `note ${kind}` }, foreign(text, 600))));
  }

  redraw() {
    if (this.progress) this.show(this.progress);
    this.part.redraw?.();
  }

  close() {
    this.part.close?.();
  }
}
