// Numbers with units in the reader's language, and times in UTC or local time.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

export const UNKNOWN = "–";
/** @type {Set<() => void>} */
const followers = new Set();
let isLocal = kept("lakefeed.zone") === "local";

/**
 * Return a setting of this browser.
 * @param {string} name
 * @returns {string | null}
 */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/**
 * Store a setting in this browser, if the browser allows it.
 * @param {string} name
 * @param {string | null} value
 */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // In a browser without storage, the setting ends with the page.
  }
}

/**
 * @param {number | null | undefined} value
 * @param {string} [unit]
 * @returns {string}
 */
export function count(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const text = Math.abs(value) < 10 && !Number.isInteger(value) ? precise.format(value) : whole.format(value);
  return unit ? `${text} ${unit}` : text;
}

/** @param {number | null | undefined} value */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  return Math.abs(value) < 10_000 ? count(value) : compact.format(value);
}

/** @param {number | null | undefined} value */
export function rate(value) {
  return value === null || value === undefined ? UNKNOWN : `${count(value)}/s`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds < 1) return seconds === 0 ? "0 s" : `${whole.format(seconds * 1000)} ms`;
  if (seconds < 10) return `${precise.format(seconds)} s`;
  if (seconds < 60) return `${whole.format(seconds)} s`;
  const rounded = Math.round(seconds);
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${String(rounded % 60).padStart(2, "0")} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${whole.format(seconds / 86400)} days`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at ? precise.format(value) : whole.format(value)} ${units[at]}`;
}

/**
 * Format money with two decimals, or a small amount with two significant digits.
 * @param {number | null | undefined} value
 * @param {string | null | undefined} currency
 */
export function money(value, currency) {
  if (value === null || value === undefined) return UNKNOWN;
  const text = value !== 0 && Math.abs(value) < 0.1 ? value.toLocaleString(undefined, { maximumSignificantDigits: 2 }) : value.toFixed(2);
  return currency ? `${text} ${currency}` : text;
}

export function zoneIsLocal() {
  return isLocal;
}

/** Return the name of the time zone in which the page shows times. */
export function zoneName() {
  if (!isLocal) return "UTC";
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** Switch between UTC and local time, and redraw the views. */
export function switchZone() {
  isLocal = !isLocal;
  keep("lakefeed.zone", isLocal ? "local" : "utc");
  for (const follow of followers) follow();
}

/** @param {() => void} follow */
export function onZone(follow) {
  followers.add(follow);
}

/**
 * @param {Date} date
 * @param {{seconds?: boolean, day?: boolean}} [parts]
 */
export function clock(date, { seconds = true, day = false } = {}) {
  /** @type {Intl.DateTimeFormatOptions} */
  const options = { hour: "2-digit", minute: "2-digit", hour12: false, timeZone: isLocal ? undefined : "UTC" };
  if (seconds) options.second = "2-digit";
  const time = date.toLocaleTimeString("en-GB", options);
  return day ? `${date.toLocaleDateString("sv-SE", { timeZone: options.timeZone })} ${time}` : time;
}

/**
 * Format a time that the server sent; a time of the last 12 hours has no date.
 * @param {string | null | undefined} iso
 * @param {{day?: boolean}} [parts]
 */
export function time(iso, { day } = {}) {
  if (!iso) return UNKNOWN;
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return UNKNOWN;
  const isToday = Math.abs(Date.now() - date.getTime()) < 43_200_000;
  return clock(date, { day: day ?? !isToday });
}

/**
 * Format how long ago a time was; `now` is the server's time, by default the browser's.
 * @param {string | null | undefined} iso
 * @param {string | null | undefined} now
 */
export function ago(iso, now) {
  if (!iso) return UNKNOWN;
  const seconds = ((now ? Date.parse(now) : Date.now()) - Date.parse(iso)) / 1000;
  return seconds < 1 ? "now" : `${duration(seconds < 10 ? Math.round(seconds) : seconds)} ago`;
}
