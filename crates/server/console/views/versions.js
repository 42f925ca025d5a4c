// The versions of a key, the newest first: what each changed, a way back to it.

import { ask } from "../api.js";
import { asField, field } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { action, badge, empty, fill, select, toast } from "../ui.js";
import { changes } from "./difference.js";
import { bestForm, valueShown } from "./entry.js";
import { addressOf, readValue } from "./entries.js";
import { pathOf } from "./keyspace.js";
import { keepsHistory } from "./keyspaces.js";

const PAGE = 25;

export function versions(options) {
  const view = new Versions(options);
  view.look();
  return view;
}

class Versions {
  constructor({ name, key, onRestored }) {
    Object.assign(this, { name, keyBytes: key, onRestored });
    this.abort = new AbortController();
    this.all = [];
    // The stamp from which there are more.
    this.next = null;
    // Whether versions are kept at all: null until that is known.
    this.kept = null;
    this.place = h("div", {});
    this.element = h("section", { class: "stack" }, this.place);
  }

  look() {
    return fill(this.place, () => this.more(), this.abort.signal);
  }

  async more() {
    const { signal } = this.abort;
    this.kept = await keepsHistory(this.name, signal);
    if (!this.kept) return h("p", { class: "muted" }, "This keyspace keeps no older versions: those of the structure History do.");
    const answer = await ask(addressOf(this.name, this.keyBytes, { limit: PAGE, to: this.next }, "history"), { signal });
    for (const one of answer.versions) this.all.push({ ...one, value: field(one, "value") });
    this.next = answer.next;
    return this.draw();
  }

  draw() {
    if (this.all.length === 0) return empty("No versions", "None were kept of this key.");
    const rows = this.all.map((one, index) => this.version(one, index));
    const more = this.next !== null && action("Older versions", async () => replace(this.place, await this.more()), { kind: "quiet" });
    return [h("h3", {}, "History"), h("ol", { class: "timeline" }, rows), more];
  }

  version(one, index) {
    const at = format.stampTime(one.stamp);
    const size = one.value ? one.value.length : one.value_size;
    const body = h("div", { class: "version-body", hidden: true });
    const open = h("button", { type: "button", class: "button quiet small", "aria-expanded": "false", title: `Stamp ${one.stamp}`, on: { click: () => {
      body.hidden = !body.hidden;
      open.setAttribute("aria-expanded", String(!body.hidden));
      if (!body.hidden) this.open(body, one, index);
    } } }, format.time(at));
    const what = one.deleted ? badge("deleted", "bad") : index === 0 ? badge("current", "good") : null;
    return h("li", { class: `version ${one.deleted ? "deleted" : ""}`, "data-stamp": one.stamp },
      h("div", { class: "version-head" }, open, what, h("span", { class: "muted" }, [one.deleted ? null : format.bytes(size), format.ago(at)].filter(Boolean).join(" · "))), body);
  }

  async valueOf(one) {
    if (!one || one.deleted) return new Uint8Array();
    one.value ??= await readValue(this.name, this.keyBytes, one.stamp, this.abort.signal);
    return one.value;
  }

  // What a version changed of the one before it, or of any other that is chosen.
  open(body, one, index) {
    const shownAs = h("div", {});
    const compare = (with_) => fill(replace(shownAs), async () => {
      const value = await this.valueOf(one);
      if (with_ === "value") return one.deleted ? h("p", { class: "muted" }, "It was deleted.") : valueShown(value, bestForm(value));
      return changes(await this.valueOf(this.all.find(({ stamp }) => stamp === with_)), value);
    }, this.abort.signal);
    const others = this.all.filter((other) => other !== one).map((other) => {
      const place = this.all.indexOf(other);
      const said = place === index + 1 ? "since the version before" : place === 0 ? "since the newest" : `since ${format.time(format.stampTime(other.stamp))}`;
      return [other.stamp, `Changes ${said}`];
    });
    const first = this.all[index + 1]?.stamp ?? "value";
    const choice = select([["value", "Value"], ...others], first, compare, "Shown");
    const restore = action("Restore", async () => {
      await ask(`${pathOf(this.name)}/restore`, { method: "POST", json: { ...asField("key", this.keyBytes), at: one.stamp } });
      toast(one.deleted ? "It is as it was: deleted" : "Restored");
      this.onRestored(one.stamp);
    }, { kind: "small" });
    const then = h("a", { class: "button small", href: link(["keys", this.name], { at: one.stamp, key: this.keyBytes }) }, "All keys then");
    replace(body, h("div", { class: "stack" }, h("div", { class: "actions" }, choice, index > 0 && restore, then), shownAs));
    compare(first);
  }

  close() {
    this.abort.abort();
  }
}
