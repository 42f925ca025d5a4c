// One keyspace: its figures, its structure drawn, and what can be done with it.

import { ask, isAbort, sleep } from "../api.js";
import { escape, fromText } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { go, link } from "../router.js";
import { archive } from "../stats.js";
import { action, badge, card, confirm, dialog, empty, facts, fill, labelled, messageOf, page, toast } from "../ui.js";
import { structure } from "./structure.js";
import { STRUCTURES, structureName } from "./keyspaces.js";

const AGAIN_AFTER = 3000;

export const pathOf = (name) => `/v1/keyspaces/${escape(fromText(name))}`;

function figures(found) {
  const older = archive(found.name);
  return facts([
    ["Structure", structureName(found.structure)],
    ["Entries", format.atMost(found.entries_estimate)],
    ["On disk", format.bytes(found.bytes_on_disk)],
    ["Live", format.bytes(found.bytes_live)],
    ["Dead", format.bytes(found.bytes_dead)],
    found.bytes_pinned > 0 && ["Pinned by snapshots", format.bytes(found.bytes_pinned)],
    older && ["Older versions", `${format.bytes(older.bytes_on_disk)} on disk`],
    ["In memtables", format.bytes(found.memtable_bytes)],
    ["Write amplification", format.ratio(found.write_amplification)],
    ["Read amplification", format.ratio(found.read_amplification)],
    ["Space amplification", format.ratio(found.space_amplification)],
    ["Lookups", format.count(found.gets)],
    ["Cache hits", format.percent(found.cache_hits / (found.cache_hits + found.cache_misses))],
    ["Flushes", format.count(found.flushes)],
    ["Compactions", format.count(found.consolidations)],
    found.compaction_debt > 0 && ["To be compacted", format.bytes(found.compaction_debt)],
    found.entries_expiring > 0 && ["Entries that expire", format.count(found.entries_expiring)],
  ]);
}

async function rename(name) {
  const to = h("input", { type: "text", value: name, required: true, autocomplete: "off", spellcheck: "false" });
  const work = () => ask(`${pathOf(name)}/rename`, { method: "POST", json: { to: to.value } });
  const done = await dialog("Rename keyspace", labelled("New name", to), [["Cancel", () => true], ["Rename", work]]);
  if (done === "Rename") go(["keyspace", to.value], {}, { replace: true });
}

async function convert(name, is) {
  const choices = STRUCTURES.filter(([structure]) => structure !== is);
  const field = h("select", {}, choices.map(([value, title, text]) => h("option", { value }, `${title}: ${text}`)));
  const text = is === "history" ? "Its older versions are lost by that: what is current is kept." : "Reads and writes go on meanwhile.";
  const work = () => ask(`${pathOf(name)}/convert`, { method: "POST", json: { structure: field.value, ...(is === "history" ? { confirm: "yes" } : {}) } });
  const done = await dialog("Convert into another structure", [h("p", { class: "muted" }, text), labelled("Structure", field)], [["Cancel", () => true], ["Convert", work]]);
  if (done === "Convert") toast(`${name} is being converted`);
}

function actions(name, again) {
  const post = (what, said) => async () => {
    await ask(`${pathOf(name)}/${what}`, { method: "POST" });
    toast(said);
    again();
  };
  return [
    h("a", { class: "button primary", href: link(["keys", name]) }, "Browse keys"),
    action("Flush", post("flush", "Flushed"), { title: "Writes what is in memory to the structure" }),
    action("Compact", post("compact", "Compaction is under way"), { title: "Rewrites the structure as small as it gets" }),
  ];
}

function danger(name, is) {
  const clear = () => confirm("Clear keyspace", `All keys of ${name} are deleted.`, "Clear",
    () => ask(`${pathOf(name)}/clear`, { method: "POST" }), { word: name })
    .then((done) => done && toast(`${name} is empty`));
  const drop = () => confirm("Drop keyspace", `${name} and all that is in it are removed, its versions too.`, "Drop",
    () => ask(`${pathOf(name)}?confirm=yes`, { method: "DELETE" }), { word: name })
    .then((done) => done && go(["keyspaces"], {}, { replace: true }));
  return h("div", { class: "actions" }, action("Rename…", () => rename(name)), action("Convert…", () => convert(name, is)),
    action("Clear…", clear), action("Drop…", drop));
}

export function keyspace(route, signal) {
  const name = route.parts[1] ?? "";
  const [numbers, drawn, acts] = [h("div", {}), h("div", {}), h("div", {})];
  const kind = h("span", {});

  const look = async () => {
    const [found, tables] = await Promise.all([
      ask(pathOf(name), { signal }),
      ask(`${pathOf(name)}/tables`, { signal }).catch((error) => {
        if (isAbort(error)) throw error;
        return { problem: messageOf(error) };
      }),
    ]);
    replace(kind, badge(structureName(found.structure), "accent"));
    replace(drawn, tables.problem ? empty("Not shown", tables.problem) : structure(found, tables));
    if (!acts.hasChildNodes()) replace(acts, danger(name, found.structure));
    return figures(found);
  };
  fill(numbers, look, signal);
  const follow = async () => {
    while (!signal.aborted) {
      await sleep(AGAIN_AFTER, signal);
      if (signal.aborted || document.hidden || document.querySelector("dialog[open]")) continue;
      await look().then((made) => !signal.aborted && replace(numbers, made), () => {});
    }
  };
  follow();
  const element = page(name, { lead: kind, actions: actions(name, () => look().then((made) => replace(numbers, made), () => {})) },
    card("Figures", numbers), card("Structure", drawn), card("Change", acts));
  return { title: name, element, escape: () => go(["keyspaces"]) };
}
