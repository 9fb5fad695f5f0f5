// A part of the feed's page that reads its document from the server when it opens, and again every few seconds.

import { ApiError, ofFeed } from "../api.js";
import { fill, foreign, h, section } from "../dom.js";

const EVERY_MS = 10_000;

export class DetailPart {
  /**
   * @param {string} feed
   * @param {{title: string, what: string, every?: number}} options
   */
  constructor(feed, { title, what, every = EVERY_MS }) {
    this.feed = feed;
    this.what = what;
    /** @type {any} */
    this.content = null;
    this.text = "";
    this.problem = h("p", { class: "note warn", hidden: true });
    this.place = h("div", { class: "steps" }, h("p", { class: "empty" }, "Loading …"));
    this.element = section(title, this.problem, this.place);
    this.timer = setInterval(() => document.visibilityState === "visible" && this.load(), every);
  }

  async load() {
    try {
      const content = await ofFeed(this.feed, this.what);
      this.problem.hidden = !content.error;
      this.take(content);
    } catch (error) {
      this.problem.textContent = error instanceof ApiError ? error.text : "this part cannot be shown";
      this.problem.hidden = false;
      this.text = ""; // Without this, an answer that equals the last good answer would not be drawn over the error.
      if (this.content === null) fill(this.place);
    }
  }

  /** @param {any} content */
  take(content) {
    const { taken_at: _, ...rest } = content;
    const text = JSON.stringify(rest);
    // A redraw would close the tables that the user has opened, so equal content is not redrawn.
    if (text === this.text) return;
    this.text = text;
    this.content = content;
    this.redraw();
  }

  redraw() {
    if (this.content === null) return;
    if (this.content.error) {
      fill(this.problem, foreign(this.content.error, 600));
      this.problem.hidden = false;
    }
    this.show(this.content);
  }

  /** @param {any} _content */
  show(_content) {}

  close() {
    clearInterval(this.timer);
  }
}
