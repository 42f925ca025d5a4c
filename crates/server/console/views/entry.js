// An entry: its value as text, JSON or bytes, when it was written, its versions; editing it where
// nobody else has meanwhile, and deleting it with a way back.

import { ask, isAbort } from "../api.js";
import { asField, dump, fromHex, fromText, shown, toHex, toText } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { action, button, dialog, facts, fill, labelled, messageOf, segments, toast } from "../ui.js";
import { read, readValue, remove, write } from "./entries.js";
import { pathOf } from "./keyspace.js";
import { compact, isJson, painted, pretty } from "./json.js";
import { changes } from "./difference.js";
import { versions } from "./versions.js";

const PAINTED_MAX = 200_000;
const SHOWN_MAX = 2_000_000;
const FORMS = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];

// The form that says most of a value.
export function bestForm(value) {
  const text = toText(value);
  if (text === null || /[\u0000-\u0008\u000e-\u001f]/.test(text)) return "hex";
  return isJson(text) ? "json" : "text";
}

export function valueShown(value, form) {
  if (value.length === 0) return h("pre", { class: "value muted" }, "(empty)");
  const part = value.subarray(0, SHOWN_MAX);
  const cut = value.length > part.length && h("p", { class: "muted" }, `The first ${format.bytes(part.length)} are shown.`);
  if (form === "hex") return [h("pre", { class: "value hex", tabindex: 0 }, dump(part)), cut];
  const text = toText(part);
  if (text === null) return h("p", { class: "muted" }, "This is not text: see it in hex.");
  if (form === "text") return [h("pre", { class: "value", tabindex: 0 }, text), cut];
  if (!isJson(text)) return h("p", { class: "muted" }, "This is not JSON.");
  const made = pretty(text);
  return h("pre", { class: "value", tabindex: 0 }, made.length > PAINTED_MAX ? made : painted(made));
}

function editable(value, form) {
  if (form === "hex") return toHex(value).replace(/(.{47}) /g, "$1\n");
  return form === "json" ? pretty(toText(value)) : toText(value);
}

// Whether JSON is as it was when it is laid out, edited and put back.
function keepsItsForm(text) {
  return isJson(text) && (pretty(text) === text || compact(text) === text);
}

// Bytes of what was typed. JSON keeps to how it was stored: in one line, or as it was typed.
function typed(text, form, before) {
  if (form === "hex") {
    const bytes = fromHex(text);
    if (!bytes) throw new Error("This is not hex: pairs of digits, as 00 ff.");
    return bytes;
  }
  if (form !== "json") return fromText(text);
  if (!isJson(text)) throw new Error("This is not JSON.");
  const was = toText(before) ?? "";
  return fromText(isJson(was) && was !== pretty(was) && compact(was) === was ? compact(text) : text);
}

export function entry(options) {
  const view = new Entry(options);
  view.look();
  return view;
}

class Entry {
  constructor({ name, key, at, onClose, onChange }) {
    Object.assign(this, { name, keyBytes: key, at, onClose, onChange });
    this.abort = new AbortController();
    this.found = null;
    this.form = null;
    this.acts = h("div", { class: "actions" });
    this.body = h("div", { class: "stack" });
    this.past = h("div", {});
    const heading = h("h2", { tabindex: -1, title: key.length ? toHex(key.subarray(0, 256)) : null }, shown(key, 1024) || "(empty key)");
    this.element = h("div", { class: "entry", role: "region", "aria-label": "Key" },
      h("div", { class: "entry-head" }, button("", onClose, { kind: "quiet only-narrow", glyph: "back", title: "Back to the list (Esc)" }), heading,
        button("", onClose, { kind: "quiet only-broad", glyph: "close", title: "Close (Esc)" })),
      this.acts, this.body, this.past);
  }

  get signal() {
    return this.abort.signal;
  }

  async look() {
    await fill(this.body, async () => {
      this.found = await read(this.name, this.keyBytes, this.at, this.signal);
      if (!this.signal.aborted) this.show();
    }, this.signal);
    if (!this.signal.aborted) this.lookBack();
  }

  lookBack() {
    this.versions?.close();
    this.versions = versions({ name: this.name, key: this.keyBytes, onRestored: (stamp) => this.restored(stamp) });
    replace(this.past, this.versions.element);
  }

  async restored() {
    await this.look();
    this.onChange(this.found);
  }

  show() {
    const { found } = this;
    replace(this.acts, this.at ? null : [
      found && button("Edit", () => this.edit(), { glyph: "edit", title: "Edit (e)" }),
      found && action("Delete", () => this.delete(), { glyph: "trash" }),
      !found && button("Put a value", () => this.edit(), { glyph: "edit" }),
    ], found && action("Download", () => this.download(), { kind: "quiet", glyph: "download" }));
    if (!found) {
      replace(this.body, h("p", { class: "muted" }, this.at ? "There was no such key then." : "There is no such key now."));
      return;
    }
    const written = format.stampTime(found.stamp);
    const expires = found.expires && new Date(found.expires);
    const pairs = facts([
      ["Written", h("span", { title: format.ago(written) }, format.time(written))],
      ["Stamp", h("span", { class: "mono" }, found.stamp)],
      ["Size", `${format.bytes(found.size)}`],
      ["Expires", expires ? `${format.time(expires)} (${format.ago(expires)})` : "never"],
    ]);
    replace(this.body, pairs, found.value ? this.valuePart() : this.largePart());
  }

  valuePart() {
    this.form ??= bestForm(this.found.value);
    const place = h("div", {}, valueShown(this.found.value, this.form));
    const choice = segments("Value as", FORMS, this.form, (form) => {
      this.form = form;
      replace(place, valueShown(this.found.value, form));
    });
    return h("div", { class: "stack" }, choice, place);
  }

  largePart() {
    return h("div", { class: "empty" }, h("strong", {}, `The value has ${format.bytes(this.found.size)}`),
      h("p", {}, "It is fetched when you ask for it."), action("Fetch", async () => {
        this.found.value = await readValue(this.name, this.keyBytes, this.at, this.signal);
        this.show();
      }, { kind: "primary" }));
  }

  async download() {
    const value = this.found.value ?? await readValue(this.name, this.keyBytes, this.at, this.signal);
    const url = URL.createObjectURL(new Blob([value], { type: "application/octet-stream" }));
    h("a", { href: url, download: (toText(this.keyBytes) ?? "value").replace(/[^\w.-]+/g, "_") || "value" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async edit() {
    if (this.at || document.querySelector("dialog[open]")) return;
    if (this.found && !this.found.value) {
      try {
        this.found.value = await readValue(this.name, this.keyBytes, null, this.signal);
      } catch (error) {
        if (!isAbort(error)) toast(messageOf(error), { kind: "bad" });
        return;
      }
    }
    const was = this.found?.value ?? new Uint8Array();
    // A field of text makes \n of every end of a line: such a value is edited as bytes.
    const best = toText(was) === null || was.includes(13) ? "hex" : this.form ?? bestForm(was);
    const form = best === "json" && !keepsItsForm(toText(was)) ? "text" : best;
    await this.editFrom({ text: editable(was, form), form, before: this.found });
  }

  // Edits until it is saved or given up. What others write meanwhile is shown beside it.
  async editFrom({ text, form, before, seconds }) {
    const area = h("textarea", { spellcheck: "false", rows: 14, value: text, on: { keydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) area.form.requestSubmit();
    } } });
    const left = before?.expires ? String(Math.max(1, Math.round((new Date(before.expires) - Date.now()) / 1000))) : "";
    const ttl = h("input", { type: "number", min: 1, step: 1, value: seconds ?? left, placeholder: before ? "never" : "as the keyspace says" });
    let conflict = null;
    // What nobody has changed stays when it was, to the millisecond; never, too.
    const lasting = () => {
      if (before && ttl.value === left) return { expires: before.expires ?? "never" };
      return ttl.value ? { ttl: Number(ttl.value) } : { expires: before ? "never" : null };
    };
    const save = async () => {
      const value = typed(area.value, form, before?.value ?? new Uint8Array());
      try {
        await write(this.name, this.keyBytes, value, { stamp: before?.stamp, onlyNew: !before, ...lasting(), signal: this.signal });
      } catch (error) {
        if (error.status !== 412) throw error;
        conflict = value;
      }
    };
    const title = before ? "Edit value" : "Put a value";
    const done = await dialog(title, [labelled(form === "hex" ? "Bytes in hex" : form === "json" ? "JSON" : "Text", area, "Ctrl Enter saves, if nobody has changed it since you opened it."),
      labelled("Expires in seconds", ttl)], [["Cancel", () => true], ["Save", save]], { wide: true });
    if (done !== "Save") return;
    if (conflict) await this.settle({ text: area.value, form, mine: conflict, seconds: ttl.value, lasting: lasting() });
    else await this.saved("Saved");
  }

  async saved(said) {
    toast(said);
    await this.look();
    this.onChange(this.found);
  }

  // Somebody else was first: both are shown, and one is chosen.
  async settle({ text, form, mine, seconds, lasting }) {
    const theirs = await read(this.name, this.keyBytes, null, this.signal);
    if (theirs && !theirs.value) theirs.value = await readValue(this.name, this.keyBytes, null, this.signal);
    const when = theirs ? `It was written ${format.ago(format.stampTime(theirs.stamp))}, with stamp ${theirs.stamp}.` : "It was deleted.";
    let next = null;
    const overwrite = async () => {
      await write(this.name, this.keyBytes, mine, { stamp: theirs?.stamp, onlyNew: !theirs, ...lasting, signal: this.signal });
      next = "saved";
    };
    await dialog("Somebody else has changed it", [h("p", {}, `Nothing was saved. ${when}`), h("h3", {}, "From theirs to yours"),
      changes(theirs?.value ?? new Uint8Array(), mine)], [
      ["Take theirs", () => { next = "theirs"; }],
      ["Edit on", () => { next = "edit"; }],
      ["Overwrite with mine", overwrite],
    ], { wide: true });
    if (next === "saved") return this.saved("Overwritten");
    if (next === "edit") return this.editFrom({ text, form, before: theirs, seconds });
    await this.look();
    return this.onChange(this.found);
  }

  // Deleted at once, and put back if that was a mistake.
  async delete() {
    const { found } = this;
    try {
      await remove(this.name, this.keyBytes, { stamp: found.stamp, signal: this.signal });
    } catch (error) {
      if (error.status !== 412) throw error;
      toast("Somebody else has changed it meanwhile: look again before you delete it.", { kind: "bad" });
      await this.look();
      return;
    }
    const { name, keyBytes } = this;
    const undo = this.versions?.kept ? () => ask(`${pathOf(name)}/restore`, { method: "POST", json: { ...asField("key", keyBytes), at: found.stamp } })
      : found.value ? () => write(name, keyBytes, found.value, { onlyNew: true, expires: found.expires ?? "never" }) : null;
    const back = async () => {
      try {
        await undo();
        toast("It is back");
        if (!this.signal.aborted) await this.look();
        this.onChange(await read(name, keyBytes, null));
      } catch (error) {
        toast(messageOf(error), { kind: "bad" });
      }
    };
    toast(`Deleted ${shown(keyBytes, 40)}`, undo ? { label: "Undo", onAction: back } : {});
    this.onChange(null);
    await this.look();
  }

  key(pressed) {
    if (pressed !== "e" || this.at) return false;
    this.edit();
    return true;
  }

  close() {
    this.versions?.close();
    this.abort.abort();
  }
}
