// The page: its routes, its connection to the server, and the settings in its header.

import { isOperator, loadSession, logOut } from "./api.js";
import { announce, fill, h, setText } from "./dom.js";
import { clock, duration, keep, kept, onZone, switchZone, zoneIsLocal, zoneName } from "./format.js";
import { Stream } from "./stream.js";
import { FeedView } from "./views/feed.js";
import { ListView } from "./views/list.js";

/**
 * @typedef {object} View
 * @property {string | null} feed the feed that the view shows; null for the list
 * @property {(kind: string, content: any) => void} onEvent
 * @property {() => void} load reads all data from the server
 * @property {(path: string[]) => boolean} [go] opens another part of the view
 * @property {() => void} [redraw] called after a change of theme or zone
 * @property {() => void} close
 */

const main = byId("main");
const banner = byId("banner");
/** @type {View | null} */
let view = null;
let lostTimer = 0;

const stream = new Stream({
  onEvent: (kind, content) => view?.onEvent(kind, content),
  onOpen: connected,
  onLost: lost,
});

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** Return the parts of the address after the hash, decoded. */
function route() {
  return location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}

function show() {
  const [kind, feed, ...rest] = route();
  const wanted = kind === "feed" && feed !== undefined ? feed : null;
  if (view !== null && view.feed === wanted && (wanted === null || view.go?.(rest))) return;
  const isFirst = view === null;
  view?.close();
  view = wanted === null ? new ListView(main) : new FeedView(main, wanted, rest);
  stream.follow(wanted);
  view.load();
  scrollTo(0, 0);
  // The focus makes screen readers read a new view; they read the first view by themselves.
  if (!isFirst) main.focus({ preventScroll: true });
}

function connected() {
  clearInterval(lostTimer);
  const wasLost = !banner.hidden;
  banner.hidden = true;
  document.documentElement.dataset.link = "open";
  setText(byId("link-text"), "live");
  if (wasLost) {
    announce("The connection is back.");
    void loadSession().then(showUser, () => null);
    view?.load();
  }
}

/** @param {Date} since */
function lost(since) {
  clearInterval(lostTimer);
  document.documentElement.dataset.link = "lost";
  setText(byId("link-text"), "connection lost");
  const showBanner = () => {
    const text = `Connection lost since ${clock(since)} ${zoneName()}. The page shows data of that time, and reconnects by itself.`;
    if (banner.hidden) {
      fill(banner, h("span", null, text), " ", h("span", { id: "lost-for", "aria-hidden": "true" }));
      banner.hidden = false;
    }
    setText(byId("lost-for"), `(${duration(Math.round((Date.now() - since.getTime()) / 1000))})`);
  };
  showBanner();
  lostTimer = setInterval(showBanner, 1000);
}

/** @param {import("./api.js").Session} session */
function showUser(session) {
  fill(byId("user"), session.user ? h("bdi", null, session.user) : "", session.login_required || !isOperator() ? ` (${session.role})` : "");
  byId("logout").hidden = !session.login_required;
}

function settings() {
  const zone = byId("zone");
  const nameZone = () => setText(zone, zoneIsLocal() ? "Local time" : "UTC");
  zone.addEventListener("click", switchZone);
  onZone(() => {
    nameZone();
    announce(`Times are in ${zoneName()}.`);
    view?.redraw?.();
  });
  nameZone();

  const theme = byId("theme");
  const names = ["auto", "light", "dark"];
  const nameTheme = () => setText(theme, `Theme: ${document.documentElement.dataset.theme ?? "auto"}`);
  theme.addEventListener("click", () => {
    const next = names[(names.indexOf(kept("lakefeed.theme") ?? "auto") + 1) % names.length];
    keep("lakefeed.theme", next === "auto" ? null : next);
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    nameTheme();
    view?.redraw?.();
  });
  nameTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.redraw?.());

  byId("logout").addEventListener("submit", (event) => {
    event.preventDefault();
    void logOut();
  });
  byId("skip").addEventListener("click", (event) => {
    // The hash of the address is the page's route, so following the link must not change the hash.
    event.preventDefault();
    main.focus();
  });
}

async function start() {
  settings();
  addEventListener("hashchange", show);
  try {
    showUser(await loadSession());
  } catch (error) {
    if (error instanceof Error && "status" in error && error.status === 401) return;
  }
  show();
}

void start();
