// Dead letters by reason, with samples, and a button that replays them.

import { isOperator } from "../api.js";
import { fill, foreign, h, table } from "../dom.js";
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
              h("h3", null, `${count(reason.count)} × `, foreign(reason.reason, 300)),
              reason.samples?.length ? samples(reason) : h("p", { class: "soft" }, "No samples are kept."),
            ),
          )
        : error
          ? null
          : h("p", { class: "empty" }, "There are no dead letters."),
      complete === false ? h("p", { class: "soft" }, "These are the newest dead letters; older ones are not counted here.") : null,
    );
  }
}

/** @param {any} reason */
function samples(reason) {
  return table({
    caption: "Samples of this reason",
    columns: ["Record", "Key", "Value", `Time (${zoneName()})`],
    rows: reason.samples.map((/** @type {any} */ sample) => [
      h("span", null, foreign(sample.topic, 100), `-${sample.partition} @ ${sample.offset}`),
      content(sample, "key", 100),
      content(sample, "value", 240),
      time(sample.at),
    ]),
  });
}

/**
 * Show a key or a value: cut, with its whole length in bytes where it is longer.
 * @param {any} sample
 * @param {string} name
 * @param {number} most
 */
function content(sample, name, most) {
  const value = sample[name];
  if (value === null || value === undefined) return h("span", { class: "soft" }, "null");
  if (value === "") return h("span", { class: "soft" }, "empty");
  const size = sample[`${name}_bytes`];
  const isHex = sample[`${name}_encoding`] === "hex";
  const isCut = sample[`${name}_cut`] === true || value.length > most;
  return h(
    "span",
    null,
    isHex ? h("span", { class: "soft" }, "hex ") : null,
    foreign(value.slice(0, most), most),
    isCut && size ? h("span", { class: "soft" }, ` … (${bytes(size)} in all)`) : null,
  );
}
