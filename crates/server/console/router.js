// Views by the hash of the address: "#/keys/orders?prefix=a%FF". What stands in it is bytes.

import { escape, fromText, toText, unescape } from "./bytes.js";

const asBytes = (part) => (typeof part === "string" ? fromText(part) : part);

// The address of a view; what is empty or null in the query is left out.
export function link(parts, query = {}) {
  const path = parts.map((part) => escape(asBytes(part))).join("/");
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name}=${escape(asBytes(value))}`);
  return `#/${path}${pairs.length ? `?${pairs.join("&")}` : ""}`;
}

export function go(parts, query, { replace = false } = {}) {
  const to = link(parts, query);
  if (to === location.hash) return;
  // Told at once: nobody acts for a view that is not the one of the address any more.
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path === "" ? [] : path.split("/").map((part) => toText(unescape(part)) ?? "");
  const values = new Map();
  for (const pair of query.split("&").filter(Boolean)) {
    const at = pair.indexOf("=");
    values.set(at < 0 ? pair : pair.slice(0, at), unescape(at < 0 ? "" : pair.slice(at + 1)));
  }
  const text = (name) => (values.has(name) ? toText(values.get(name)) : null);
  return { parts, bytes: (name) => values.get(name) ?? null, text };
}

// Shows views in `outlet`. A view is `(route, signal) => { element, title, update?, close? }`; what
// it has asked for is broken off when another takes its place.
export function start(routes, outlet, onShown) {
  let current = null;

  const show = () => {
    const route = parse(location.hash);
    const name = route.parts[0] ?? "overview";
    const view = routes[name] ?? routes.overview;
    if (current?.view === view && current.shown.update?.(route)) {
      onShown(name, current.shown);
      return;
    }
    const isFirst = current === null;
    current?.abort.abort();
    current?.shown.close?.();
    const abort = new AbortController();
    const shown = view(route, abort.signal);
    current = { view, abort, shown };
    outlet.replaceChildren(shown.element);
    window.scrollTo(0, 0);
    onShown(name, shown);
    if (!isFirst) outlet.querySelector("h1")?.focus({ preventScroll: true });
  };

  window.addEventListener("hashchange", show);
  show();
  return {
    current: () => current?.shown,
    again: () => {
      if (current) current.view = null;
      show();
    },
  };
}
