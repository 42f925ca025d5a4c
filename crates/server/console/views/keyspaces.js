// All keyspaces: their structures and sizes.

import { ask } from "../api.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { List } from "../list.js";
import { go } from "../router.js";
import { badge, button, dialog, fill, labelled, page, search, toast } from "../ui.js";

export const STRUCTURES = [
  ["flex", "Flex", "Mixed reads and writes, fast scans"],
  ["lsm", "LSM", "Many writes, large data, small on disk"],
  ["history", "History", "Every version kept: time travel, audit"],
];

export function structureName(structure) {
  return STRUCTURES.find(([name]) => name === structure)?.[1] ?? structure;
}

const known = new Map();

// All keyspaces with their figures, by name.
export async function fetchKeyspaces(signal) {
  const { keyspaces } = await ask("/v1/keyspaces", { signal });
  for (const { name, structure } of keyspaces) known.set(name, structure);
  return keyspaces.sort((left, right) => (left.name < right.name ? -1 : 1));
}

// Whether a keyspace keeps older versions, as far as that was told.
export async function keepsHistory(name, signal) {
  if (!known.has(name)) await fetchKeyspaces(signal);
  return known.get(name) === "history";
}

export async function create() {
  const name = h("input", { type: "text", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" });
  const radios = STRUCTURES.map(([structure, title, text], index) => h("label", { class: "check-line" },
    h("input", { type: "radio", name: "structure", value: structure, checked: index === 0 }), h("span", {}, h("strong", {}, title), ` – ${text}`)));
  const make = async () => {
    const structure = radios.map((radio) => radio.firstChild).find((radio) => radio.checked).value;
    await ask("/v1/keyspaces", { method: "POST", json: { name: name.value, structure } });
  };
  const done = await dialog("New keyspace", [labelled("Name", name), h("fieldset", { class: "plain" }, h("legend", {}, "Structure"), radios)],
    [["Cancel", () => true], ["Create", make]]);
  if (done !== "Create") return;
  toast(`Made ${name.value}`);
  go(["keyspace", name.value]);
}

function row(found) {
  return h("div", { class: "ks-row" }, h("span", { class: "name" }, found.name), badge(structureName(found.structure)),
    h("span", { class: "number wide" }, format.atMost(found.entries_estimate)), h("span", { class: "number wide" }, format.bytes(found.bytes_on_disk)),
    h("span", { class: "number wide" }, format.bytes(found.memtable_bytes)), h("span", { class: "number wide" }, format.ratio(found.space_amplification)),
    h("span", { class: "muted only-phone" }, `${format.atMost(found.entries_estimate, format.short)} entries · ${format.bytes(found.bytes_on_disk)}`));
}

export function keyspaces(route, signal) {
  let all = [];
  const list = new List({ label: "Keyspaces", height: 44, row, onOpen: (found) => go(["keyspace", found.name]), none: "No keyspace has such a name" });
  const filter = search("Filter by name", {
    input: () => show(),
    keydown: (event) => {
      if (event.key !== "ArrowDown" && event.key !== "Enter") return;
      list.element.focus();
      list.move(0);
      event.preventDefault();
    },
  });
  const show = () => {
    const seen = all.filter((found) => found.name.toLowerCase().includes(filter.field.value.toLowerCase()));
    list.element.style.height = `${Math.max(2, seen.length) * list.rowHeight()}px`;
    list.show(seen);
  };
  const head = h("div", { class: "ks-row ks-head" }, ["Name", "Structure"].map((name) => h("span", {}, name)),
    ["Entries", "On disk", "In memory", "Space"].map((name) => h("span", { class: "number" }, name)));
  const place = h("div", { class: "card ks-list" });
  fill(place, async () => {
    all = await fetchKeyspaces(signal);
    queueMicrotask(show);
    return [head, list.element];
  }, signal);
  const element = page("Keyspaces", { actions: [button("New keyspace", create, { kind: "primary", glyph: "plus" })] },
    h("div", { class: "bar-of-fields" }, filter.element), place);
  return { title: "Keyspaces", element, close: () => list.close() };
}
