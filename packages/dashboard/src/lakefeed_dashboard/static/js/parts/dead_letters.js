// Dead letters by reason, with samples, and a button that replays them.

import { isOperator } from "../api.js";
import { announce, fill, foreign, h, table, visible } from "../dom.js";
import { bytes, count, time, zoneName } from "../format.js";
import { ACTIONS, actionButton } from "./actions.js";
import { DetailPart } from "./detail.js";

export class DeadLettersPart extends DetailPart {
  /** @param {string} feed */
  constructor(feed) {
    super(feed, { title: "Dead letters by reason", what: "dead-letters" });
    this.replay = h("div", { class: "actions", hidden: true }, actionButton(feed, ACTIONS.replay));
    this.element.insertBefore(this.replay, this.problem);
  }

  /** @param {any} content */
  show({ reasons, replayable, complete, error }) {
    this.replay.hidden = !(replayable && isOperator());
    fill(
      this.place,
      reasons?.length
        ? reasons.map((/** @type {any} */ reason) =>
            h(
              "div",
              { class: "chart" },
              h("h3", null, `${count(reason.count)} ${isOne(reason) ? "×" : "such as"} `, foreign(reason.samples?.[0]?.reason ?? reason.reason, 300)),
              reason.samples?.length ? samples(reason) : h("p", { class: "soft" }, "There are no samples."),
            ),
          )
        : error
          ? null
          : h("p", { class: "empty" }, "There are no dead letters."),
      complete === false ? h("p", { class: "soft" }, "Only the newest dead letters are counted here.") : null,
    );
  }
}

/**
 * Check that all samples have the same reason. They may differ, because the server groups reasons that differ only in numbers.
 * @param {any} reason
 */
function isOne(reason) {
  return new Set(reason.samples?.map((/** @type {any} */ sample) => sample.reason)).size <= 1;
}

/** @param {any} reason */
function samples(reason) {
  const differ = !isOne(reason);
  return table({
    caption: "Samples of this reason",
    columns: ["Record", "Key", "Value", `Time (${zoneName()})`, ...(differ ? ["Reason"] : [])],
    rows: reason.samples.map((/** @type {any} */ sample) => [
      h("span", null, foreign(sample.topic, 100), `-${sample.partition} @ ${sample.offset}`),
      content(sample, "key", 100),
      content(sample, "value", 240),
      time(sample.at),
      ...(differ ? [foreign(sample.reason, 300)] : []),
    ]),
  });
}

/**
 * Show a key or value and a button that copies it. A long text is truncated until the user opens the text.
 * @param {any} sample
 * @param {string} name
 * @param {number} most
 */
function content(sample, name, most) {
  const value = sample[name];
  if (value === null || value === undefined) return h("span", { class: "soft" }, "null");
  if (value === "") return h("span", { class: "soft" }, "empty");
  const size = sample[`${name}_bytes`];
  const isCut = sample[`${name}_cut`] === true;
  const start = h(
    "span",
    null,
    sample[`${name}_encoding`] === "hex" ? h("span", { class: "soft" }, "hex ") : null,
    foreign(value.slice(0, most), most),
    (isCut || value.length > most) && size ? h("span", { class: "soft" }, ` … (${bytes(size)} in all)`) : null,
  );
  const whole = foreign(value, value.length);
  const rest = `The rest: lakefeed dead-letters show ${sample.topic}:${sample.partition}:${sample.offset} pipeline.yaml`;
  return h(
    "div",
    { class: "content" },
    value.length > most ? h("details", null, h("summary", null, start), whole, isCut ? h("p", { class: "hint" }, visible(rest, 400)) : null) : start,
    h("button", { type: "button", class: "quiet", "aria-label": `Copy this ${name}`, onclick: () => copy(value, whole) }, "Copy"),
  );
}

/**
 * Copy a text; if the browser forbids copying, as over HTTP, select the displayed text.
 * @param {string} text
 * @param {HTMLElement} shown
 */
async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  } catch {
    const details = shown.closest("details");
    if (details) details.open = true;
    getSelection()?.selectAllChildren(shown);
    announce("Selected; this browser does not let the page copy.");
  }
}
