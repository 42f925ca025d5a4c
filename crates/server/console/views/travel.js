// Time travel: a moment is chosen, what a keyspace held then is shown beside what it holds now.

import { ask } from "../api.js";
import { escape, fromText } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { button, card, confirm, empty, facts, fill, labelled, page, select, toast } from "../ui.js";
import { fetchKeyspaces } from "./keyspaces.js";
import { pathOf } from "./keyspace.js";

const BACK = [[60, "1 min ago"], [300, "5 min ago"], [3600, "1 hour ago"], [86_400, "1 day ago"], [604_800, "1 week ago"]];
const STEPS = [[-3600, "−1 h"], [-60, "−1 min"], [-1, "−1 s"], [1, "+1 s"], [60, "+1 min"], [3600, "+1 h"]];

const isStamp = (at) => /^\d{6,}$/.test(at);

function timeOf(at) {
  return isStamp(at) ? format.stampTime(at) : new Date(at);
}

// That what is shown is the past, and ways to other moments; `onMove` is told the next, or null for now.
export function banner(at, onMove) {
  const then = timeOf(at);
  const step = ([length, label]) => button(label, () => {
    const to = new Date(then.getTime() + length * 1000);
    onMove(to > new Date() ? null : to.toISOString());
  }, { kind: "small" });
  return h("div", { class: "banner", role: "status" }, h("span", {}, `As of ${format.time(then)} (${format.ago(then)})`), h("span", { class: "space" }),
    Number.isNaN(then.getTime()) ? null : STEPS.map(step), button("Back to now", () => onMove(null), { kind: "small primary" }));
}

export function travel(route, signal) {
  const result = h("div", {});
  const chosen = { name: null, at: null };
  const when = h("input", { type: "datetime-local", step: 1, "aria-label": "Date and time", "data-search": true, on: { change: () => pick(new Date(when.value)) } });
  const stamp = h("input", { type: "text", inputmode: "numeric", placeholder: "Decimal digits", autocomplete: "off", on: { change: () => isStamp(stamp.value.trim()) && pick(stamp.value.trim()) } });

  const pick = (at) => {
    if (at instanceof Date && Number.isNaN(at.getTime())) return;
    const time = at instanceof Date ? at : format.stampTime(at);
    chosen.at = at instanceof Date ? at.toISOString() : at;
    when.value = `${format.date(time)}T${format.clock(time)}`;
    if (at instanceof Date) stamp.value = "";
    look();
  };
  const count = async (at) => (await ask(`${pathOf(chosen.name)}/count${at ? `?at=${escape(fromText(at))}` : ""}`, { signal })).count;

  const look = () => {
    if (!chosen.at || !chosen.name) return;
    const { name, at } = chosen;
    fill(replace(result), async () => {
      const [then, now] = await Promise.all([count(at), count(null)]);
      if (at !== chosen.at || name !== chosen.name) return undefined;
      return card(`${name} at ${format.time(timeOf(at))}`,
        facts([["Entries then", format.count(then)], ["Entries now", format.count(now)], ["Moment", format.ago(timeOf(at))]]),
        h("div", { class: "actions below" }, h("a", { class: "button primary", href: link(["keys", name], { at }) }, "Browse as of then"),
          button("Restore to then…", () => restore(name, at))));
    }, signal);
  };

  const restore = async (name, at) => {
    const prefix = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const text = ["What was changed since is changed back, as a new commit: nothing is lost from its history.", labelled("Only keys that begin with", prefix, "Empty: all keys.")];
    const work = () => ask(`${pathOf(name)}/restore`, { method: "POST", json: { prefix: prefix.value, at, confirm: "yes" } });
    if (await confirm(`Restore ${name}`, h("div", { class: "stack" }, text), "Restore", work, { word: name })) {
      toast(`${name} is as it was`);
      look();
    }
  };

  const form = h("div", {});
  fill(form, async () => {
    const kept = (await fetchKeyspaces(signal)).filter(({ structure }) => structure === "history");
    if (kept.length === 0) return empty("No keyspace keeps its history", "Make one with the structure History, or convert one into it.", h("a", { class: "button", href: link(["keyspaces"]) }, "Keyspaces"));
    chosen.name = kept[0].name;
    const presets = BACK.map(([length, label]) => button(label, () => pick(new Date(Date.now() - length * 1000)), { kind: "small" }));
    return [h("div", { class: "fields" }, labelled("Keyspace", select(kept.map(({ name }) => [name, name]), chosen.name, (name) => { chosen.name = name; look(); }, "Keyspace")),
      labelled("Date and time here", when), labelled("Or a stamp", stamp)), h("div", { class: "actions below" }, presets)];
  }, signal);
  const element = page("Time travel", { lead: "Keyspaces of the structure History keep every version. Choose a moment, and look around in it." }, card("Moment", form), result);
  return { title: "Time travel", element };
}
