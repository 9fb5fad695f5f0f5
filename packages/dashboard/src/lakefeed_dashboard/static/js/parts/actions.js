// The buttons that control a feed. A dialog asks for confirmation, and then shows the result.

import { act, ApiError } from "../api.js";
import { announce, fill, h, visible } from "../dom.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} hint
 * @property {"text" | "number"} [type]
 */
/**
 * @typedef {object} Action
 * @property {string} action
 * @property {string} title
 * @property {(feed: string) => string} asks
 * @property {string} confirm
 * @property {boolean} [danger]
 * @property {Field[]} [fields]
 */

const REASON = { name: "reason", label: "Reason", hint: "Optional. Others see it, and it survives a restart of the driver." };

/** @type {Record<string, Action>} */
export const ACTIONS = {
  pause: {
    action: "pause",
    title: "Pause",
    asks: () => "The current batch is finished and committed; then no records are read until the feed is resumed.",
    confirm: "Pause",
    fields: [REASON],
  },
  resume: { action: "resume", title: "Resume", asks: () => "Records are read again, from the position that is committed.", confirm: "Resume" },
  stop: {
    action: "stop",
    title: "Stop",
    asks: () => "The current batch is finished and committed; then the driver ends. It is started again with “lakefeed run”, not from here.",
    confirm: "Stop the feed",
    danger: true,
    fields: [{ ...REASON, hint: "Optional. It is logged." }],
  },
  upkeep: {
    action: "upkeep",
    title: "Run upkeep",
    asks: () => "Small files are compacted and old snapshots expire, as the pipeline file says, beside the batches.",
    confirm: "Run upkeep",
  },
  replay: {
    action: "replay",
    title: "Replay dead letters",
    asks: () => "Dead letters are decoded again; those that decode now are written to the table.",
    confirm: "Replay",
  },
  change: {
    action: "change",
    title: "Change trigger",
    asks: () => "The change holds until the run ends. Leave a field empty to keep its value.",
    confirm: "Change",
    fields: [
      { name: "trigger", label: "Trigger", hint: "Time between batches, such as “10 seconds”." },
      { name: "max_records_per_batch", label: "Records per batch, at most", hint: "A whole number.", type: "number" },
    ],
  },
};

/**
 * Create the button of an action.
 * @param {string} feed
 * @param {Action} action
 */
export function actionButton(feed, action) {
  return /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", class: action.danger ? "danger" : null, "data-action": action.action, onclick: () => ask(feed, action) }, action.title)
  );
}

/**
 * Ask for confirmation, and run the action.
 * @param {string} feed
 * @param {Action} action
 */
export function ask(feed, action) {
  const fields = (action.fields ?? []).map((field) => ({ field, input: inputOf(field) }));
  const result = h("p", { role: "alert", hidden: true });
  const go = /** @type {HTMLButtonElement} */ (h("button", { class: `main-action ${action.danger ? "danger" : ""}` }, action.confirm));
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const title = h("h2", { id: "dialog-title" }, `${action.title}: `, h("bdi", null, visible(feed, 100)));
  const form = h(
    "form",
    { method: "dialog" },
    title,
    h("p", { id: "dialog-text" }, action.asks(feed)),
    fields.map(({ field, input }) => [
      h("label", { for: input.id }, field.label),
      input,
      h("p", { class: "hint", id: `${input.id}-hint` }, field.hint),
    ]).flat(),
    result,
    h("div", { class: "buttons" }, cancel, go),
  );
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" }, form)
  );
  let isDone = false;
  form.addEventListener("submit", async (event) => {
    if (isDone) return;
    event.preventDefault();
    go.disabled = true;
    try {
      const answer = await act(feed, requestOf(action.action, fields));
      isDone = true;
      say(result, "note good", visible(answer.event?.message ?? "accepted", 300));
      announce(`${action.title}: accepted`);
      fill(form, title, result, h("div", { class: "buttons" }, h("button", { class: "main-action", autofocus: true }, "Close")));
      /** @type {HTMLElement} */ (form.querySelector("button")).focus();
    } catch (error) {
      go.disabled = false;
      say(result, "note bad", visible(error instanceof ApiError ? error.text : "it failed", 500));
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  (fields[0]?.input ?? (action.danger ? cancel : go)).focus();
}

/** @param {Field} field */
function inputOf(field) {
  const id = `field-${field.name}`;
  const number = field.type === "number" ? { type: "number", min: "1", step: "1", inputmode: "numeric" } : { type: "text", maxlength: "300" };
  return /** @type {HTMLInputElement} */ (h("input", { id, name: field.name, autocomplete: "off", "aria-describedby": `${id}-hint`, ...number }));
}

/**
 * @param {string} action
 * @param {{field: Field, input: HTMLInputElement}[]} fields
 */
function requestOf(action, fields) {
  /** @type {Record<string, unknown>} */
  const request = { action };
  for (const { field, input } of fields) {
    const value = input.value.trim();
    if (value !== "") request[field.name] = field.type === "number" ? Number(value) : value;
  }
  return request;
}

/**
 * @param {HTMLElement} element
 * @param {string} kind
 * @param {string} text
 */
function say(element, kind, text) {
  element.className = kind;
  element.textContent = text;
  element.hidden = false;
}
