// The feed's tables: files, bytes, and the newest snapshots.

import { fill, foreign, h, table, visible } from "../dom.js";
import { bytes, count, time, UNKNOWN, zoneName } from "../format.js";
import { DetailPart } from "./detail.js";

export class TablePart extends DetailPart {
  /** @param {string} feed */
  constructor(feed) {
    super(feed, { title: "Files and snapshots", what: "table", every: 15_000 });
  }

  /** @param {any} content */
  show({ tables, taken_at, left_out }) {
    fill(
      this.place,
      tables?.length ? tables.map(one) : h("p", { class: "empty" }, "This sink has no table with snapshots."),
      left_out ? h("p", { class: "soft" }, `${count(left_out)} more tables`) : null,
      taken_at ? h("p", { class: "soft" }, `Read at ${time(taken_at)} ${zoneName()}`) : null,
    );
  }
}

/** @param {any} found */
function one(found) {
  const snapshots = [...(found.snapshots ?? [])].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  return h(
    "div",
    { class: "chart" },
    h("h3", null, foreign(found.name, 150)),
    found.error ? h("p", { class: "note warn" }, foreign(found.error, 500)) : null,
    found.note ? h("p", { class: "note calm" }, foreign(found.note, 300)) : null,
    h("p", { class: "soft" }, figures(found)),
    snapshots.length
      ? table({
          caption: "Snapshots, newest first",
          columns: [`Committed (${zoneName()})`, "Operation", ...["Feed's batch", "Files added", "Rows added", "Rows in all"].map((title) => ({ title, number: true })), "Snapshot"],
          rows: snapshots.map((snapshot) => [
            time(snapshot.at),
            visible(snapshot.operation, 40),
            snapshot.feed_batch === null || snapshot.feed_batch === undefined ? UNKNOWN : String(snapshot.feed_batch),
            count(snapshot.added_files),
            count(snapshot.added_rows),
            count(snapshot.total_rows),
            h("code", null, visible(String(snapshot.id), 30)),
          ]),
        })
      : null,
  );
}

/** @param {any} found */
function figures(found) {
  const parts = [
    found.rows === null || found.rows === undefined ? "" : `${count(found.rows)} rows`,
    found.files === null || found.files === undefined ? "" : `${count(found.files)} data files`,
    found.delete_files ? `${count(found.delete_files)} delete files` : "",
    found.bytes === null || found.bytes === undefined ? "" : bytes(found.bytes),
    found.snapshot_count === null || found.snapshot_count === undefined ? "" : `${count(found.snapshot_count)} snapshots`,
  ];
  return parts.filter(Boolean).join(" · ");
}
