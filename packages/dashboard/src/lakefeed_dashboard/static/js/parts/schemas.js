// The schemas of the table over time, with their changes.

import { fill, foreign, h, table } from "../dom.js";
import { count, time, zoneName } from "../format.js";
import { DetailPart } from "./detail.js";

export class SchemasPart extends DetailPart {
  /** @param {string} feed */
  constructor(feed) {
    super(feed, { title: "Schema history", what: "schemas", every: 30_000 });
  }

  /** @param {any} content */
  show({ schemas, writers, note, error }) {
    const newest = [...(schemas ?? [])].reverse();
    const tables = new Set(newest.map((schema) => schema.table));
    fill(
      this.place,
      note ? h("p", { class: "note calm" }, foreign(note, 300)) : null,
      newest.map((schema) => one(schema, tables.size > 1)),
      newest.length || error || note ? null : h("p", { class: "empty" }, "The table does not exist yet."),
      writers?.length
        ? table({
            caption: `Writers' schemas that came during this run (${zoneName()})`,
            columns: ["Schema id", "Since", "Batch"],
            rows: writers.map((/** @type {any} */ writer) => [String(writer.id), time(writer.at), String(writer.batch ?? "–")]),
            hidden: false,
          })
        : null,
    );
  }
}

/**
 * @param {any} schema
 * @param {boolean} isOfMany whether there are several tables
 */
function one(schema, isOfMany) {
  const isNewest = schema.current === true;
  const changes = [
    ...(schema.added ?? []).map((/** @type {any} */ field) => chip("good", "added", field)),
    ...(schema.changed ?? []).map((/** @type {any} */ field) => chip("warn", "changed", field)),
    ...(schema.removed ?? []).map((/** @type {any} */ field) => chip("bad", "removed", field)),
  ];
  const fields = schema.fields ?? [];
  return h(
    "div",
    { class: "chart" },
    h("h3", null, isOfMany ? [foreign(schema.table, 120), ", "] : null, `schema ${schema.id}`, isNewest ? ", in force" : ""),
    h("p", { class: "soft" }, `${schema.at ? `since ${time(schema.at, { day: true })} ${zoneName()} · ` : ""}${count(fields.length)} columns`),
    changes.length ? h("ul", { class: "chips" }, changes) : h("p", { class: "soft" }, "No difference to an earlier one."),
    h(
      "details",
      { open: isNewest && fields.length <= 30 },
      h("summary", null, "Columns"),
      table({
        caption: `Columns of schema ${schema.id}`,
        columns: ["Column", "Type", "Null allowed"],
        rows: fields.map((/** @type {any} */ field) => [foreign(field.name, 120), h("code", null, foreign(field.type, 200)), field.nullable ? "yes" : "no"]),
      }),
    ),
  );
}

/**
 * @param {string} kind
 * @param {string} word
 * @param {any} field a name, or a field with what it was before
 */
function chip(kind, word, field) {
  return h("li", { class: `chip ${kind}` }, `${word}: `, foreign(textOf(field), 200));
}

/** @param {any} field */
function textOf(field) {
  if (typeof field !== "object" || field === null) return String(field);
  const before = field.before ?? field.from;
  const after = field.after ?? field.to ?? field.type;
  const type = (/** @type {any} */ value) => (typeof value === "object" && value !== null ? `${value.type}${value.nullable === false ? " not null" : ""}` : String(value));
  return `${field.name}${after === undefined ? "" : ` ${before === undefined ? "" : `${type(before)} → `}${type(after)}`}`;
}
