// What the database does at the moment: tiles, charts, jobs, and what is not well.

import { Chart } from "../chart.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { isOver, jobRow, watchJobs } from "../jobs.js";
import { link } from "../router.js";
import { MEMORY, onSample, samples, state } from "../stats.js";
import { badge, card, empty, facts, messageOf, page } from "../ui.js";

const latency = (kind, at) => (sample) => sample.latency[kind]?.[at];

function charts() {
  return [
    new Chart({ title: "Throughput", hint: "Requests a second, of all protocols; commits of the engine", unit: (value) => `${format.short(value)}/s`, least: 10, series: [
      { name: "Reads", colour: 1, of: ({ rates }) => rates.reads },
      { name: "Writes", colour: 3, of: ({ rates }) => rates.writes },
      { name: "Scans", colour: 2, of: ({ rates }) => rates.scans },
      { name: "Commits", colour: 4, of: ({ rates }) => rates.commits },
    ] }),
    new Chart({ title: "Latency", hint: "What so many of the requests of each second took at most; the axis goes by tenfolds", unit: format.seconds, log: true, least: 1e-6, series: [
      { name: "Read p50", colour: 1, of: latency("reads", "p50") },
      { name: "Read p99", colour: 2, of: latency("reads", "p99") },
      { name: "Write p50", colour: 3, of: latency("writes", "p50") },
      { name: "Write p99", colour: 5, of: latency("writes", "p99") },
    ] }),
    new Chart({ title: "Memory", hint: "By part, against the budget", unit: format.bytes, stacked: true, base: 2, least: 1 << 20,
      limit: { name: "Budget", of: ({ memory }) => memory?.budget },
      series: MEMORY.map(([part, name, colour]) => ({ name, colour, of: ({ memory }) => memory.parts[part] })) }),
    new Chart({ title: "Amplification", hint: "Bytes written for each byte committed; reads from disk for each lookup; bytes on disk for each that is live", unit: format.ratio, least: 2, series: [
      { name: "Write", colour: 3, of: ({ amplification }) => amplification.write },
      { name: "Read", colour: 1, of: ({ amplification }) => amplification.read },
      { name: "Space", colour: 4, of: ({ amplification }) => amplification.space },
    ] }),
    new Chart({ title: "Stalls", hint: "How much of each second writers waited, all together", unit: (value) => format.seconds(value) + "/s", least: 0.01, series: [
      { name: "Stopped", colour: 5, of: ({ rates }) => rates.stall },
      { name: "Slowed", colour: 3, of: ({ rates }) => rates.slow },
    ] }),
  ];
}

function tiles() {
  const made = {};
  const tile = (name, label) => {
    const value = h("div", { class: "big" }, "–");
    const note = h("div", { class: "note" }, "\u00a0");
    made[name] = (text, more) => {
      value.textContent = text;
      note.textContent = more || "\u00a0";
    };
    return h("div", { class: "card tile", "data-tile": name }, h("div", { class: "label" }, label), value, note);
  };
  const element = h("div", { class: "tiles" }, tile("rate", "Requests"), tile("latency", "Write p99"), tile("entries", "Entries"),
    tile("disk", "On disk"), tile("memory", "Memory"), tile("connections", "Connections"));
  return { element, show: (sample) => showTiles(made, sample) };
}

function showTiles(made, { stats, rates, memory, latency: took, totals }) {
  const all = rates.reads + rates.writes + rates.scans;
  made.rate(Number.isFinite(all) ? `${format.short(all)}/s` : "–", Number.isFinite(rates.commits) ? `${format.short(rates.commits)} commits/s` : "");
  made.latency(format.seconds(took.writes?.p99), `reads ${format.seconds(took.reads?.p99)}`);
  made.entries(format.atMost(totals.entries, format.short), `in ${format.count(totals.named.length)} keyspaces`);
  made.disk(format.bytes(stats.bytes_on_disk), `${format.bytes(stats.bytes_live)} live, log ${format.bytes(stats.wal_bytes_on_disk)}`);
  made.memory(format.bytes(memory.used), `${format.percent(memory.used / memory.budget)} of ${format.bytes(memory.budget)}`);
  made.connections(format.count(totals.connections), `up ${format.seconds(stats.server.uptime_seconds)}`);
}

// What is not well, as notes; nothing where all is.
function notes({ stats }) {
  const said = [];
  if (stats.read_only) said.push(["bad", `Read-only: ${stats.read_only}`]);
  else if (!stats.health.is_good) said.push(["bad", stats.health.message]);
  for (const { task, keyspace, message } of stats.health.failures) said.push(["bad", `${[task, keyspace].filter(Boolean).join(" of ")} fails: ${message}`]);
  for (const call of stats.health.slow_calls.filter(({ is_over }) => !is_over)) {
    said.push(["warn", `The disk is slow: ${call.action} ${call.path} takes ${format.seconds(call.seconds)}`]);
  }
  if (stats.oldest_snapshot_age_seconds > 600) said.push(["warn", `A snapshot is open since ${format.seconds(stats.oldest_snapshot_age_seconds)}, and keeps what is overwritten.`]);
  return said.map(([kind, text]) => h("div", { class: `banner ${kind}` }, text));
}

export function overview(route, signal) {
  const tile = tiles();
  const drawn = charts();
  const well = h("div", {});
  const jobs = h("div", {});
  const figures = h("div", {});
  const side = card("Jobs", jobs);
  const more = card("Database", figures);
  const [throughput, times, memory, amplification, stalls] = drawn.map((chart) => chart.element);
  for (const chart of [amplification, stalls]) chart.classList.add("third");
  side.classList.add("third");
  more.classList.add("whole");
  const bars = keyspaceBars();

  const show = () => {
    const { latest, problem } = state;
    if (problem) replace(well, h("div", { class: "banner bad" }, `There are no statistics: ${messageOf(problem)}`));
    if (!latest) return;
    if (!problem) replace(well, notes(latest));
    tile.show(latest);
    for (const chart of drawn) chart.show(samples);
    showFigures(figures, latest.stats);
  };
  const forget = onSample(show);
  watchJobs(signal, (found, error) => {
    if (error) replace(jobs, empty("Not shown", messageOf(error)));
    else if (found.length === 0) replace(jobs, empty("No jobs", "Checks, backups and compactions are shown here.", h("a", { class: "button", href: link(["maintenance"]) }, "Maintenance")));
    else replace(jobs, found.sort((left, right) => Number(isOver(left)) - Number(isOver(right))).slice(0, 3).map((job) => jobRow(job)));
  });
  show();
  const element = page("Overview", { id: "overview" }, well, tile.element,
    h("div", { class: "grid" }, throughput, times, memory, card("Keyspaces", bars.element), amplification, stalls, side, more));
  return {
    title: "Overview",
    element,
    close: () => {
      forget();
      bars.close();
      for (const chart of drawn) chart.close();
    },
  };
}

// The largest keyspaces, by what they take on disk.
function keyspaceBars() {
  const place = h("div", { class: "table" });
  const show = () => {
    const all = [...(state.latest?.totals.named ?? [])].sort((left, right) => right.bytes_on_disk - left.bytes_on_disk);
    const rows = all.slice(0, 5).map((found) => h("tr", {},
      h("td", {}, h("a", { href: link(["keyspace", found.name]) }, found.name)), h("td", {}, badge(found.structure)),
      h("td", { class: "number" }, format.atMost(found.entries_estimate, format.short)), h("td", { class: "number" }, format.bytes(found.bytes_on_disk))));
    const head = h("tr", {}, h("th", {}, "Name"), h("th", {}, "Structure"), h("th", { class: "number" }, "Entries"), h("th", { class: "number" }, "On disk"));
    if (place.contains(document.activeElement)) return;
    replace(place, rows.length ? h("table", {}, h("thead", {}, head), h("tbody", {}, rows)) : empty("No keyspaces yet"));
  };
  const forget = onSample(show);
  show();
  return { element: place, close: forget };
}

function showFigures(place, stats) {
  replace(place, facts([
    ["Commits", format.count(stats.commits)],
    ["Bytes committed", format.bytes(stats.data_bytes_written)],
    ["Log syncs", format.count(stats.wal_syncs)],
    ["Log files", `${format.count(stats.wal_files)} (${format.bytes(stats.wal_bytes_on_disk)})`],
    ["Snapshots", format.count(stats.snapshots)],
    ["Transactions open", format.count(stats.transactions_open)],
    ["Conflicts", format.count(stats.transaction_conflicts)],
    ["Stalls", `${format.count(stats.stalls)} (${format.seconds(stats.stall_seconds)})`],
    ["Slowdowns", `${format.count(stats.slowdowns)} (${format.seconds(stats.slowdown_seconds)})`],
  ]));
}
