// Builds elements. Values become text nodes or attributes, so that no text of a record becomes markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";
/** Control characters, and marks that change the direction of the following text. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
export const MOST_CHARACTERS = 200;
const SERVER_CUTS = 2000;

/**
 * Create an element. Properties that begin with "on" are listeners; all others are attributes.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, properties, ...children) {
  return /** @type {HTMLElement} */ (build(document.createElement(tag), properties, children));
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, properties, ...children) {
  return /** @type {SVGElement} */ (build(document.createElementNS(SVG, tag), properties, children));
}

/**
 * @param {Element} element
 * @param {Record<string, any> | null | undefined} properties
 * @param {(Child | Child[])[]} children
 */
function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/**
 * Replace an element's children.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  build(element, null, children);
}

/**
 * Set an element's text if the text differs, because setting an equal text would disturb screen readers and selections.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Return a value of a record or a user as text: truncated, and with hidden characters as \uXXXX.
 * @param {unknown} value
 * @param {number} [most]
 * @returns {string}
 */
export function visible(value, most = MOST_CHARACTERS) {
  if (value === null || value === undefined) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? String(value);
  const shown = text.slice(0, most).replace(HIDDEN, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
  if (text.length <= most) return shown;
  // The server truncates texts longer than SERVER_CUTS, so the page does not know the full length of a longer text.
  return text.length < SERVER_CUTS ? `${shown}… (${text.length.toLocaleString()} characters)` : `${shown}…`;
}

/**
 * Show a value of a record or a user; its text direction does not affect the text around it.
 * @param {unknown} value
 * @param {number} [most]
 */
export function foreign(value, most = MOST_CHARACTERS) {
  return h("bdi", { dir: "auto", class: "foreign" }, visible(value, most));
}

/**
 * Create a section; screen readers read the heading as the section's name.
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/**
 * Create a table from rows of cells. Numbers are aligned at the right; a column of bars has an empty title.
 * @param {{caption: string, columns: (string | {title: string, number?: boolean})[], rows: Child[][], hidden?: boolean}} content
 */
export function table({ caption, columns, rows, hidden = true }) {
  const wide = columns.map((column) => (typeof column === "string" ? { title: column, number: false } : column));
  const kind = (/** @type {number} */ at) => (wide[at]?.number ? "number" : null);
  return h(
    "div",
    { class: "scrolls", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: hidden ? "unseen" : null }, caption),
      h("thead", null, h("tr", null, wide.map((column, at) => h("th", { scope: "col", class: kind(at) }, column.title || h("span", { class: "unseen" }, "Share"))))),
      h(
        "tbody",
        null,
        rows.map((row) => h("tr", null, row.map((cell, at) => h("td", { class: kind(at) }, cell)))),
      ),
    ),
  );
}

/**
 * Announce a text to screen readers.
 * @param {string} text
 */
export function announce(text) {
  const place = document.getElementById("announcer");
  if (place) setText(place, text);
}
