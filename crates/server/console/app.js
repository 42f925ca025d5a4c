// The page: its frame, the views, the keyboard, who is there, and whether the server is.

import * as api from "./api.js";
import { h, isTyping, replace } from "./dom.js";
import { seconds } from "./format.js";
import { icon } from "./icons.js";
import { go, link, start } from "./router.js";
import * as stats from "./stats.js";
import { button, dialog, labelled } from "./ui.js";
import { changes } from "./views/changes.js";
import { keys } from "./views/keys.js";
import { keyspace } from "./views/keyspace.js";
import { keyspaces } from "./views/keyspaces.js";
import { maintenance } from "./views/maintenance.js";
import { overview } from "./views/overview.js";
import { nextTheme, settings } from "./views/settings.js";
import { travel } from "./views/travel.js";

const routes = { overview, keyspaces, keyspace, keys, travel, changes, maintenance, settings };
// Name, title, key behind `g`, whether a phone has it in its bar.
const PLACES = [
  ["overview", "Overview", "o", true],
  ["keyspaces", "Keyspaces", "s", true],
  ["keys", "Keys", "k", true],
  ["travel", "Time travel", "t", false],
  ["changes", "Changes", "c", true],
  ["maintenance", "Maintenance", "m", false],
  ["settings", "Settings", "e", false],
];

const outlet = h("main", { id: "main", tabindex: -1 });
const dot = h("span", { class: "dot" });
const standing = h("span", {}, "Connecting…");
const lostBanner = h("div", { class: "banner bad lost", role: "alert", hidden: true });
const anchors = new Map();
let router = null;

function frame() {
  const items = PLACES.map(([name, title, key, onPhone]) => {
    const anchor = h("a", { href: link([name]), class: onPhone ? "" : "only-wide", title: `${title} (g ${key})` }, icon(name), h("span", {}, title));
    anchors.set(name, anchor);
    return anchor;
  });
  const more = h("a", { href: "#", class: "only-phone", role: "button", "aria-haspopup": "dialog", on: { click: openMore } }, icon("more"), h("span", {}, "More"));
  anchors.set("more", more);
  const foot = h("div", { class: "side-foot" }, h("div", { class: "status", role: "status" }, dot, standing),
    button("", nextTheme, { kind: "quiet", glyph: "theme", title: "Light, dark or as the system (d)" }),
    button("", openHelp, { kind: "quiet", glyph: "help", title: "Keyboard shortcuts (?)" }));
  const side = h("div", { class: "side" }, h("a", { class: "brand", href: link([]) }, h("img", { src: "icon.svg", alt: "" }), "LitheDB"),
    h("nav", { "aria-label": "Views" }, items, more), foot);
  const skip = h("a", { class: "button skip", href: "#main", on: { click: (event) => { event.preventDefault(); outlet.focus(); } } }, "To the content");
  document.body.append(skip, h("div", { class: "frame" }, side, h("div", {}, lostBanner, outlet)));
}

function openMore(event) {
  event.preventDefault();
  const places = PLACES.filter(([, , , onPhone]) => !onPhone);
  const items = places.map(([name, title]) => h("a", { class: "more-item", href: link([name]), on: { click: closeDialogs } }, icon(name), title));
  const theme = h("a", { class: "more-item", href: "#", on: { click: (pressed) => { pressed.preventDefault(); nextTheme(); } } }, icon("theme"), "Light or dark");
  dialog("More", h("div", {}, items, theme), [["Close"]]);
}

function closeDialogs() {
  for (const open of document.querySelectorAll("dialog[open]")) open.close();
}

const SHORTCUTS = [
  ...PLACES.map(([, title, key]) => [["g", key], title]),
  [["/"], "Search or filter"],
  [["n"], "New key, in Keys"],
  [["e"], "Edit the open key"],
  [["↑", "↓"], "Move in a list or along a chart (← →)"],
  [["Enter"], "Open what is marked"],
  [["Esc"], "Close, or go back to the list"],
  [["r"], "Look again"],
  [["d"], "Light, dark, as the system"],
  [["?"], "This list"],
];

function openHelp() {
  if (document.querySelector("dialog[open]")) return;
  const rows = SHORTCUTS.map(([pressed, what]) => [h("span", {}, pressed.flatMap((key, index) => [index ? " " : "", h("kbd", {}, key)])), h("span", {}, what)]);
  dialog("Keyboard shortcuts", h("div", { class: "shortcuts" }, rows), [["Close"]]);
}

let prefix = 0;

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (isTyping(event.target)) event.target.blur();
    else router.current()?.escape?.();
    return;
  }
  if (isTyping(event.target)) return;
  const isSecond = Date.now() - prefix < 1200;
  prefix = 0;
  const place = isSecond && PLACES.find(([, , key]) => key === event.key);
  if (place) {
    go([place[0]]);
  } else if (event.key === "g") {
    prefix = Date.now();
    return;
  } else if (event.key === "/") {
    const field = outlet.querySelector("[data-search]");
    if (!field) return;
    field.focus();
    field.select();
  } else if (event.key === "?") {
    openHelp();
  } else if (event.key === "d") {
    nextTheme();
  } else if (event.key === "r") {
    router.again();
  } else if (!router.current()?.key?.(event.key)) {
    return;
  }
  event.preventDefault();
}

// Who is there? Asked for where the server wants to know, and until it is content.
async function askToken(wasRefused) {
  const field = h("input", { type: "password", autocomplete: "off", spellcheck: "false", name: "token", required: true });
  const enter = async () => {
    const response = await fetch("/v1/whoami", { headers: { Authorization: `Bearer ${field.value.trim()}` }, cache: "no-store", credentials: "omit" });
    if (response.status === 401) throw new Error("The server does not know this token.");
    if (response.status === 429) throw new Error("There were too many wrong tokens. Wait a minute.");
    if (!response.ok) throw new Error(`The server says ${response.status}.`);
    api.setToken(field.value.trim());
  };
  const text = wasRefused ? "The token that was used is not accepted any more." : "This server wants to know who you are.";
  const done = await dialog("Sign in", [h("p", { class: "muted" }, text), labelled("Token", field, "It is kept for this tab, until that is closed.")], [["Sign in", enter]]);
  return done !== null;
}

let wasLost = false;

function showConnection({ lost, retryAt }) {
  lostBanner.hidden = !lost;
  if (lost) {
    const wait = h("span", {});
    const count = () => {
      if (!api.connection.lost || !wait.isConnected) return;
      const left = Math.ceil((retryAt - Date.now()) / 1000);
      wait.textContent = left > 0 ? `Next try in ${seconds(left)}.` : "Trying…";
      setTimeout(count, 1000);
    };
    replace(lostBanner, h("span", {}, "The server cannot be reached."), wait, button("Try now", api.retryNow, { kind: "small" }));
    count();
  } else if (wasLost) {
    router?.again();
  }
  wasLost = lost;
  showHealth();
}

function showHealth() {
  const { latest, problem } = stats.state;
  const health = latest?.stats.health;
  let [kind, text] = [health?.is_good ? "good" : "bad", health?.message];
  if (api.connection.lost) [kind, text] = ["bad", "Not connected"];
  else if (problem) [kind, text] = ["warn", problem.status === 403 ? "No statistics" : "Statistics failed"];
  else if (!latest) [kind, text] = ["", "Connecting…"];
  dot.className = `dot ${kind}`;
  standing.textContent = text.charAt(0).toUpperCase() + text.slice(1);
}

frame();
api.onTokenNeeded(askToken);
api.onConnection(showConnection);
stats.onSample(showHealth);
stats.begin();
document.addEventListener("keydown", onKey);
router = start(routes, outlet, (name, shown) => {
  stats.begin();
  document.title = `${shown.title} · LitheDB`;
  const nearest = { keyspace: "keyspaces" }[name] ?? name;
  for (const [at, anchor] of anchors) {
    const place = PLACES.find(([is]) => is === nearest);
    const here = at === nearest || (at === "more" && place && !place[3]);
    if (here) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
});
