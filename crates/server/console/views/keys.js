// The keys of a keyspace: by prefix, page after page, now or at a moment; beside them the one that is
// open.

import { ask } from "../api.js";
import { asField, equal, escape, field, fromHex, fromText, shown, toHex, toText } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { List } from "../list.js";
import { go } from "../router.js";
import { button, dialog, labelled, messageOf, page, search, segments, select, toast } from "../ui.js";
import { entry } from "./entry.js";
import { fetchKeyspaces } from "./keyspaces.js";
import { pathOf } from "./keyspace.js";
import { write } from "./entries.js";
import { banner } from "./travel.js";

const PAGE = 200;
let lastKeyspace = null;

// What is asked for and shown: a keyspace, what keys begin with, and when.
function wanted(route) {
  return { name: route.parts[1] ?? lastKeyspace, prefix: route.bytes("prefix"), at: route.text("at"), key: route.bytes("key") };
}

// Whether the address is still one of this view, which is told of another one later.
const isHere = () => /^#\/keys(?=[/?]|$)/.test(location.hash);

export function keys(route, signal) {
  const view = new Keys(signal);
  view.update(route);
  return view;
}

class Keys {
  constructor(signal) {
    this.signal = signal;
    this.title = "Keys";
    this.want = { name: null, prefix: null, at: null, key: null };
    this.loading = null;
    this.items = [];
    this.cursor = null;
    this.past = h("div", {});
    this.choice = h("span", {});
    this.form = "text";
    const field = search("Keys that begin with…", { input: () => this.typed(), keydown: (event) => this.searchKey(event) });
    this.search = field.field;
    this.list = new List({ label: "Keys", height: 38, row: (item) => this.row(item), onOpen: (item) => this.open(item.key), onEnd: () => this.more(), none: "" });
    this.standing = h("span", {});
    this.count = h("span", {});
    this.side = h("div", { class: "card pane of-entry" });
    this.split = h("div", { class: "split" }, h("div", { class: "card pane of-list" }, this.list.element, h("div", { class: "pane-foot" }, this.standing, this.count)));
    const form = segments("Prefix is", [["text", "Text"], ["hex", "Hex"]], "text", (chosen) => {
      this.form = chosen;
      this.showPrefix();
    });
    this.add = button("New key", () => this.create(), { kind: "primary", glyph: "plus", title: "New key (n)" });
    this.bar = h("div", { class: "bar-of-fields" }, this.choice, field.element, form);
    this.element = page("Keys", { id: "keys", actions: [this.add] }, this.bar, this.past, this.split);
    this.chooseKeyspace();
  }

  async chooseKeyspace() {
    let all = [];
    try {
      all = await fetchKeyspaces(this.signal);
    } catch (error) {
      if (!this.signal.aborted) this.standing.textContent = messageOf(error);
      return;
    }
    if (this.signal.aborted) return;
    this.structures = new Map(all.map((found) => [found.name, found.structure]));
    if (this.want.name === null && all.length && isHere()) {
      const first = all.find(({ name }) => name === "default") ?? all[0];
      const most = all.reduce((best, found) => (found.entries_estimate > best.entries_estimate ? found : best), first);
      go(["keys", most.name], {}, { replace: true });
    }
    this.picker = select(all.map(({ name }) => [name, name]), this.want.name, (name) => go(["keys", name]), "Keyspace");
    replace(this.choice, this.picker);
  }

  // Another address: what of it is new is shown, what is not stays. Always fits.
  update(route) {
    const want = wanted(route);
    const before = this.want;
    this.want = want;
    if (want.name !== null) lastKeyspace = want.name;
    if (this.picker) this.picker.value = want.name;
    this.title = want.name === null ? "Keys" : `${want.name} keys`;
    const same = (left, right) => (left === null || right === null ? left === right : equal(left, right));
    const isOtherList = before.name !== want.name || before.at !== want.at || !same(before.prefix, want.prefix);
    if (isOtherList) {
      if (document.activeElement !== this.search) this.showPrefix();
      replace(this.past, want.at && banner(want.at, (at) => this.go({ at })));
      this.add.hidden = Boolean(want.at);
      this.load();
    }
    if (isOtherList || !same(before.key, want.key)) this.showEntry();
    return true;
  }

  go(changed, options) {
    if (!isHere()) return;
    const { name, prefix, at, key } = { ...this.want, ...changed };
    go(["keys", name], { prefix, at, key }, options);
  }

  showPrefix() {
    const prefix = this.want.prefix ?? new Uint8Array();
    this.search.value = this.form === "hex" ? toHex(prefix) : toText(prefix) ?? shown(prefix);
    this.search.placeholder = this.form === "hex" ? "Bytes in hex, as 00 ff" : "Keys that begin with…";
  }

  typed() {
    const bytes = this.form === "hex" ? fromHex(this.search.value) : fromText(this.search.value);
    this.search.setAttribute("aria-invalid", String(bytes === null));
    clearTimeout(this.waiting);
    if (bytes) this.waiting = setTimeout(() => this.go({ prefix: bytes.length ? bytes : null, key: null }, { replace: true }), 200);
  }

  searchKey(event) {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    this.list.element.focus();
    this.list.move(Math.max(0, this.list.active));
    event.preventDefault();
  }

  // A page; asked for by a body, as addresses have no room for the cursors behind long keys.
  page(signal) {
    const { name, prefix, at } = this.want;
    const json = { ...(prefix ? asField("prefix", prefix) : {}), ...(this.cursor ? { cursor: this.cursor } : {}) };
    const moment = at ? `&at=${escape(fromText(at))}` : "";
    return ask(`${pathOf(name)}/scan?limit=${PAGE}${moment}`, { method: "POST", json, signal });
  }

  load() {
    this.loading?.abort();
    this.loading = null;
    this.items = [];
    this.cursor = null;
    this.list.none = "";
    this.list.show([]);
    this.count.textContent = "";
    if (this.want.name === null) return;
    this.begun = false;
    this.cursor = "";
    this.more();
    this.countAll();
  }

  async countAll() {
    const { name, prefix, at } = this.want;
    try {
      const parts = [prefix && `prefix=${escape(prefix)}`, at && `at=${escape(fromText(at))}`].filter(Boolean);
      const { count } = await ask(`${pathOf(name)}/count?${parts.join("&")}`, { signal: this.signal });
      if (this.want.name === name && this.want.prefix === prefix && this.want.at === at) this.count.textContent = `${format.count(count)} in all`;
    } catch {
      // The list says what is wrong.
    }
  }

  async more() {
    if (this.loading || this.cursor === null || this.signal.aborted) return;
    const mine = new AbortController();
    this.loading = mine;
    this.standing.textContent = "Loading…";
    try {
      const signal = AbortSignal.any([this.signal, mine.signal]);
      const answer = await this.page(signal);
      if (signal.aborted) return;
      for (const item of answer.entries) {
        const value = field(item, "value");
        this.items.push({ ...item, key: field(item, "key"), value, size: value ? value.length : item.value_size });
      }
      this.cursor = answer.cursor ?? null;
      this.list.none = this.want.prefix ? "No key begins with that" : "There are no keys";
      this.standing.textContent = `${format.count(this.items.length)} loaded${this.cursor === null ? "" : ", more below"}`;
      this.loading = null;
      this.list.show(this.items, { keep: true });
    } catch (error) {
      if (mine.signal.aborted || this.signal.aborted) return;
      this.cursor = null;
      this.standing.textContent = messageOf(error);
    } finally {
      if (this.loading === mine) this.loading = null;
    }
  }

  row(item) {
    const expires = item.expires ? format.ago(new Date(item.expires)) : null;
    const value = item.value ? shown(item.value, 120) : `${format.bytes(item.size)}, not fetched`;
    return [h("div", { class: "two-lines" }, h("span", { class: "key" }, shown(item.key) || "(empty)"), h("span", { class: "preview" }, value)),
      expires && h("span", { class: "aside only-wide", title: "Expires" }, expires),
      h("span", { class: "aside only-wide" }, format.bytes(item.size))];
  }

  open(key) {
    this.go({ key });
  }

  closeEntry() {
    this.go({ key: null });
    this.list.element.focus();
  }

  showEntry() {
    this.shown?.close();
    this.shown = null;
    const { name, key, at } = this.want;
    this.split.classList.toggle("open", key !== null);
    this.list.choose((item) => key !== null && equal(item.key, key));
    this.side.remove();
    if (key === null || name === null) return;
    this.shown = entry({ name, key, at, onClose: () => this.closeEntry(), onChange: (change) => this.changed(key, change) });
    replace(this.side, this.shown.element);
    this.split.append(this.side);
  }

  // A key was changed here: its row follows. `change` is the entry, or null where it is gone.
  changed(key, change) {
    const at = this.items.findIndex((item) => equal(item.key, key));
    if (change && at >= 0) this.items[at] = change;
    else if (change) this.load();
    else if (at >= 0) this.items.splice(at, 1);
    this.list.show(this.items, { keep: true });
    this.countAll();
  }

  async create() {
    if (this.want.name === null || this.want.at) return;
    let form = "text";
    const key = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", value: this.form === "text" ? this.search.value : "" });
    const value = h("textarea", { spellcheck: "false" });
    const bytes = () => {
      const made = form === "hex" ? fromHex(key.value) : fromText(key.value);
      if (!made) throw new Error("The key is not in hex: pairs of digits, as 00 ff.");
      return made;
    };
    const make = () => write(this.want.name, bytes(), fromText(value.value), { onlyNew: true });
    const kind = segments("Key is", [["text", "Text"], ["hex", "Hex"]], form, (chosen) => (form = chosen));
    const done = await dialog(`New key in ${this.want.name}`, [labelled("Key", key), kind, labelled("Value", value)], [["Cancel", () => true], ["Save", make]], { wide: true });
    if (done !== "Save") return;
    toast("Saved");
    this.load();
    this.go({ key: bytes() });
  }

  key(pressed) {
    if (pressed === "n") this.create();
    else return this.shown?.key(pressed) ?? false;
    return true;
  }

  escape() {
    if (this.want.key !== null) this.closeEntry();
  }

  close() {
    clearTimeout(this.waiting);
    this.list.close();
    this.shown?.close();
  }
}
