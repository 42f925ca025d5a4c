// What all views are made of: pages, notes, dialogs, buttons that wait.

import { isAbort } from "./api.js";
import { h, replace } from "./dom.js";
import { icon } from "./icons.js";

// A view's page: its heading, what can be done, and what it shows.
export function page(title, { lead = null, actions = [], id = "" } = {}, ...children) {
  const heading = h("h1", { tabindex: -1 }, title);
  const head = h("header", { class: "page-head" }, h("div", {}, heading, lead && h("p", { class: "lead" }, lead)), h("div", { class: "actions" }, actions));
  return h("section", { class: `page ${id}` }, head, children);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), children);
}

export function button(label, onClick, { kind = "", glyph = null, title = null, disabled = false } = {}) {
  const inside = [glyph && icon(glyph), label && h("span", {}, label)];
  return h("button", { type: "button", class: `button ${kind} ${label ? "" : "bare"}`, title, "aria-label": label ? null : title, disabled, on: { click: onClick } }, inside);
}

// A button that cannot be pressed again until what it began is done; what fails is told.
export function action(label, work, options = {}) {
  const made = button(label, async () => {
    made.disabled = true;
    try {
      await work();
    } catch (error) {
      if (!isAbort(error)) toast(messageOf(error), { kind: "bad" });
    } finally {
      made.disabled = false;
    }
  }, options);
  return made;
}

export function messageOf(error) {
  return error?.message || String(error);
}

// A field to search in, which `/` leads to.
export function search(label, on) {
  const field = h("input", { type: "search", placeholder: label, "aria-label": label, "data-search": true, autocomplete: "off", spellcheck: "false", on });
  return { field, element: h("div", { class: "search" }, icon("search"), field) };
}

export function labelled(label, control, hint = null) {
  return h("label", { class: "field" }, h("span", { class: "label" }, label), control, hint && h("span", { class: "hint" }, hint));
}

export function select(options, value, onChange, label) {
  const made = h("select", { "aria-label": label, on: { change: () => onChange(made.value) } },
    options.map(([name, text]) => h("option", { value: name }, text)));
  made.value = value;
  return made;
}

// One of a few, as buttons in a row.
export function segments(label, options, value, onChange) {
  const choose = (name) => {
    for (const made of buttons) made.setAttribute("aria-pressed", String(made.dataset.name === name));
    onChange(name);
  };
  const buttons = options.map(([name, text]) => h("button", {
    type: "button", "data-name": name, "aria-pressed": String(name === value), on: { click: () => choose(name) },
  }, text));
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function empty(title, text = null, ...actions) {
  return h("div", { class: "empty" }, h("strong", {}, title), text && h("p", {}, text), actions);
}

export function loading() {
  return h("div", { class: "loading", role: "status" }, "Loading…");
}

// Fills `place` with what `work` comes to; with what went wrong, and a way to try again.
export async function fill(place, work, signal) {
  if (!place.hasChildNodes()) replace(place, loading());
  try {
    const made = await work();
    if (!signal?.aborted && made !== undefined) replace(place, made);
  } catch (error) {
    if (signal?.aborted || isAbort(error)) return;
    const again = button("Try again", () => {
      replace(place);
      fill(place, work, signal);
    });
    replace(place, empty("This could not be shown", messageOf(error), again));
  }
}

// A bar: a share, or, where that is not known, that something is under way.
export function progress(share, label) {
  const known = Number.isFinite(share);
  const bar = h("div", { class: "bar" });
  if (known) bar.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return h("div", {
    class: `progress ${known ? "" : "unknown"}`, role: "progressbar", "aria-label": label,
    "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": known ? Math.round(share * 100) : null,
  }, bar);
}

let toasts = null;

// A note that goes by itself; with something to be done about it, it stays longer.
export function toast(text, { kind = "", label = null, onAction = null } = {}) {
  toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const gone = () => {
    clearTimeout(timer);
    note.remove();
  };
  const act = label && h("button", { type: "button", class: "button quiet", on: { click: () => { gone(); onAction(); } } }, label);
  const note = h("div", { class: `toast ${kind}` }, h("span", {}, text), act,
    h("button", { type: "button", class: "button bare quiet", "aria-label": "Dismiss", on: { click: gone } }, icon("close")));
  const timer = setTimeout(gone, label || kind === "bad" ? 12_000 : 4000);
  toasts.append(note);
  while (toasts.children.length > 4) toasts.firstChild.remove();
}

// A dialog. `actions` are `[label, work, options]`; work that returns false, or throws, leaves it open.
// Resolves to the label of what was done, or null.
export function dialog(title, body, actions, { wide = false } = {}) {
  return new Promise((resolve) => {
    let done = null;
    let busy = false;
    const wrong = h("p", { class: "wrong", role: "alert" });
    const buttons = actions.map(([label, work = null, options = {}], index) => {
      const last = index === actions.length - 1;
      return h("button", {
        type: last ? "submit" : "button", class: `button ${options.kind ?? (last ? "primary" : "")}`,
        on: last ? {} : { click: () => run(label, work) },
      }, label);
    });
    const [lastLabel, lastWork] = actions.at(-1);
    const run = async (label, work) => {
      if (busy) return;
      busy = true;
      wrong.textContent = "";
      for (const made of buttons) made.disabled = true;
      try {
        if ((await work?.()) === false) return;
        done = label;
        box.close();
      } catch (error) {
        wrong.textContent = messageOf(error);
      } finally {
        busy = false;
        for (const made of buttons) made.disabled = false;
      }
    };
    // What was typed is not lost by a click beside it.
    const leave = () => {
      if (!busy && !form.querySelector("input, textarea")) box.close();
    };
    const form = h("form", { on: { submit: (event) => { event.preventDefault(); run(lastLabel, lastWork); } } },
      h("header", {}, h("h2", {}, title), button("", () => busy || box.close(), { kind: "quiet", glyph: "close", title: "Close" })),
      h("div", { class: "dialog-body" }, body, wrong), h("footer", {}, buttons));
    const box = h("dialog", { class: wide ? "wide" : "", "aria-label": title, on: {
      close: () => { box.remove(); resolve(done); },
      cancel: (event) => { if (busy) event.preventDefault(); },
      click: (event) => { if (event.target === box) leave(); },
    } }, form);
    document.body.append(box);
    box.showModal();
    box.querySelector("[autofocus], input, textarea, select")?.focus();
  });
}

// Asks before something that has no way back; where a word is given, it has to be typed.
export function confirm(title, text, label, work, { word = null } = {}) {
  const typed = word && h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const body = [h("p", {}, text), word && labelled(`Type ${word} to go on`, typed)];
  const checked = () => {
    if (word && typed.value !== word) throw new Error(`This is not ${word}.`);
    return work();
  };
  return dialog(title, body, [["Cancel", () => true], [label, checked, { kind: "danger" }]]).then((done) => done === label);
}
