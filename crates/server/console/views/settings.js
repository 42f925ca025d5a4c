// Who is there, how it looks, and what this server is.

import { ask, setToken, token } from "../api.js";
import { h } from "../dom.js";
import { button, card, facts, fill, page, segments, toast } from "../ui.js";

const THEMES = [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]];

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("lithe-theme", name);
  } catch {
    // Storage is off: it holds until the page is left.
  }
  window.dispatchEvent(new Event("resize"));
}

export function nextTheme() {
  const names = THEMES.map(([name]) => name);
  const next = names[(names.indexOf(theme()) + 1) % names.length];
  setTheme(next);
  toast(THEMES.find(([name]) => name === next)[1]);
}

async function who(signal) {
  const said = await ask("/v1/whoami", { signal });
  if (said.tokens === false) return h("p", { class: "muted" }, "This server asks for no tokens: whoever can connect may do everything.");
  const leave = button("Forget the token", () => {
    setToken(null);
    location.reload();
  });
  return h("div", { class: "stack" }, facts([["Name", said.name ?? "–"], ["May", h("span", { class: "mono" }, (said.grants ?? []).join(", ") || "–")]]),
    token() && h("p", { class: "actions" }, leave));
}

async function about(signal) {
  const spec = await ask("/v1/openapi.json", { signal });
  return [facts([["Server", `LitheDB ${spec.info.version}`], ["Address", location.host]]),
    h("p", { class: "muted below" }, "Whatever is shown and done here is also there for programs: /v1/openapi.json describes it.")];
}

export function settings(route, signal) {
  const [identity, server] = [h("div", {}), h("div", {})];
  fill(identity, () => who(signal), signal);
  fill(server, () => about(signal), signal);
  const look = segments("Colours", THEMES, theme(), setTheme);
  const element = page("Settings", {},
    card("Colours", look), card("Who you are", identity), card("About", server));
  return { title: "Settings", element };
}
