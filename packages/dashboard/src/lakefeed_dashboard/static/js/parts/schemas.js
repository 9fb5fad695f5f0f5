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
            caption: `New schemas of writers in this run (${zoneName()})`,
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
    changes.length ? h("ul", { class: "chips" }, changes) : h("p", { class: "soft" }, "No difference to the previous schema."),
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
 * @param {any} field a field, or a change with the field before and after
 */
function chip(kind, word, field) {
  const type = (/** @type {any} */ value) => `${value.type}${value.nullable === false ? " not null" : ""}`;
  const types = field.before ? `${type(field.before)} → ${type(field.after)}` : field.type;
  return h("li", { class: `chip ${kind}` }, `${word}: `, foreign(`${field.name} ${types}`, 200));
}
