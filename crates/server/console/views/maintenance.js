// Check, backups, and what else is done beside the work: begun here, with its progress.

import { ask } from "../api.js";
import { escape, fromText } from "../bytes.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { isOver, jobRow, nameOf, watchJobs } from "../jobs.js";
import { action, button, card, confirm, dialog, empty, fill, labelled, messageOf, page, select, toast } from "../ui.js";
import { fetchKeyspaces } from "./keyspaces.js";
import { pathOf } from "./keyspace.js";

const JOBS_SHOWN = 20;

const backupPath = (name) => `/v1/backups/${escape(fromText(name))}`;

// A name that no backup has yet: the moment.
function proposed() {
  const now = new Date();
  return `${format.date(now)}-${format.clock(now).replace(/:/g, "")}`;
}

export function maintenance(route, signal) {
  const jobs = h("div", {});
  const backups = h("div", {});
  const known = new Map();

  const lookAtBackups = () => fill(backups, () => backupTable(begin, lookAtBackups, signal), signal);
  const look = watchJobs(signal, (found, error) => {
    if (error) {
      replace(jobs, empty("Not shown", messageOf(error)));
      return;
    }
    for (const job of found) {
      if (isOver(job) && known.has(job.id) && !known.get(job.id)) {
        const isGood = job.state === "done";
        toast(`${nameOf(job)}: ${job.state}`, { kind: isGood ? "" : "bad" });
        lookAtBackups();
      }
      known.set(job.id, isOver(job));
    }
    if (jobs.contains(document.activeElement) && document.activeElement.matches("button")) {
      // Who is about to press a button finds it where it was.
      const focused = document.activeElement.closest(".job")?.dataset.job;
      show(found);
      jobs.querySelector(`.job[data-job="${CSS.escape(focused ?? "")}"] button`)?.focus();
    } else {
      show(found);
    }
  });
  const show = (found) => replace(jobs, found.length ? found.slice(0, JOBS_SHOWN).map((job) => jobRow(job, look)) : empty("No jobs yet", "What is begun here is shown with its progress."));
  const begin = async (path, json) => {
    const answer = await ask(path, { method: "POST", json });
    const job = answer?.job;
    if (job) known.set(job.id, isOver(job));
    look();
    return job;
  };

  const newBackup = async () => {
    const name = h("input", { type: "text", value: proposed(), required: true, autocomplete: "off", spellcheck: "false" });
    await dialog("New backup", labelled("Name", name, "Files that other backups have already are not copied again."), [["Cancel", () => true], ["Back up", () => begin("/v1/backups", { name: name.value })]]);
  };
  const element = page("Maintenance", {},
    h("div", { class: "grid" },
      card("Check", h("p", { class: "muted" }, "Reads everything, and compares every checksum, order and count. Reads and writes go on."),
        h("p", { class: "actions below" }, action("Check now", () => begin("/v1/check"), { kind: "primary" }))),
      card("Flush and compact", rewriting(begin, signal))),
    card("Jobs", jobs),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "Backups"), button("New backup", newBackup, { kind: "primary", glyph: "plus" })), backups));
  lookAtBackups();
  return { title: "Maintenance", element };
}

function rewriting(begin, signal) {
  const place = h("div", {});
  fill(place, async () => {
    const all = await fetchKeyspaces(signal);
    if (all.length === 0) return empty("No keyspaces yet");
    let name = all[0].name;
    const choice = select(all.map((found) => [found.name, found.name]), name, (chosen) => (name = chosen), "Keyspace");
    const act = (label, what) => action(label, async () => {
      if (!(await begin(`${pathOf(name)}/${what}`))) toast("Flushed");
    });
    return [h("p", { class: "muted" }, "Flush writes what is in memory to the structures; compact gives back the room that is not needed."),
      h("p", { class: "actions below" }, choice, act("Flush", "flush"), act("Compact", "compact"))];
  }, signal);
  return place;
}

async function backupTable(begin, lookAgain, signal) {
  const { backups } = await ask("/v1/backups", { signal });
  if (backups.length === 0) return empty("No backups yet", "A backup is a whole copy as of one moment; reads and writes go on meanwhile.");
  const rows = backups.reverse().map((one) => {
    const at = new Date(one.created);
    return h("tr", { "data-backup": one.name }, h("td", { class: "mono" }, one.name), h("td", { title: format.time(at) }, format.ago(at)),
      h("td", { class: "number" }, format.bytes(one.bytes)), h("td", {}, h("div", { class: "actions" },
        action("Verify", () => begin(`${backupPath(one.name)}/verify`), { kind: "small" }),
        action("Restore…", () => restore(one.name, begin), { kind: "small" }),
        action("Delete…", () => remove(one.name, lookAgain), { kind: "small" }))));
  });
  return h("div", { class: "table" }, h("table", { class: "backups" }, h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "Made"), h("th", { class: "number" }, "Size"), h("th", {}, ""))), h("tbody", {}, rows)));
}

async function remove(name, lookAgain) {
  const work = () => ask(backupPath(name), { method: "DELETE" });
  if (await confirm("Delete backup", `${name} and the files that no other backup has are removed.`, "Delete", work)) lookAgain();
}

async function restore(name, begin) {
  const into = h("input", { type: "text", value: `${name}-restored`, required: true, autocomplete: "off", spellcheck: "false" });
  const text = "It becomes a new database beside the backups. The one that is served stays as it is.";
  await dialog("Restore backup", [h("p", { class: "muted" }, text), labelled("Into", into)], [["Cancel", () => true], ["Restore", () => begin(`${backupPath(name)}/restore`, { into: into.value })]]);
}
