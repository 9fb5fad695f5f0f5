// The buttons that control a feed: a dialog asks for confirmation, and shows the result.

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

const REASON = { name: "reason", label: "Reason", hint: "Optional. Other users see the reason, and a restarted driver still shows it." };

/** @type {Record<string, Action>} */
export const ACTIONS = {
  pause: {
    action: "pause",
    title: "Pause",
    asks: () => "The feed commits its current batch, and then reads no records until someone resumes it.",
    confirm: "Pause",
    fields: [REASON],
  },
  resume: { action: "resume", title: "Resume", asks: () => "The feed reads records again, from its committed offsets.", confirm: "Resume" },
  stop: {
    action: "stop",
    title: "Stop",
    asks: () => "The feed commits its current batch, and then the driver ends. Only “lakefeed run” starts it again.",
    confirm: "Stop the feed",
    danger: true,
    fields: [{ ...REASON, hint: "Optional. The log of events shows it." }],
  },
  upkeep: {
    action: "upkeep",
    title: "Run upkeep",
    asks: () => "The driver compacts small files and expires old snapshots by the pipeline file's settings, while batches continue.",
    confirm: "Run upkeep",
  },
  replay: {
    action: "replay",
    title: "Replay dead letters",
    asks: () => "The driver decodes the dead letters again, and writes the rows of the ones that it can decode now.",
    confirm: "Replay",
  },
  change: {
    action: "change",
    title: "Change trigger",
    asks: () => "The change lasts until the run ends. An empty field keeps its value.",
    confirm: "Change",
    fields: [
      { name: "trigger", label: "Trigger", hint: "Time between batches, such as “10 seconds”." },
      { name: "max_records_per_batch", label: "Most records per batch", hint: "A whole number.", type: "number" },
    ],
  },
};

/**
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
      say(result, "note bad", visible(error instanceof ApiError ? error.text : "the request failed", 500));
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
