// The figures of the last minutes: one stream for all views, kept for charts.

import { follow } from "./api.js";
import { WINDOW } from "./chart.js";

// They come each second.
const QUIET_FOR = 8000;

export const samples = [];
const listeners = new Set();
let isOn = false;
export const state = { latest: null, problem: null };

export function onSample(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener(state.latest);
}

export const MEMORY = [
  ["memtables", "Memtables", 1], ["cache", "Cache", 2], ["index", "Indexes", 3], ["transactions", "Transactions", 4],
  ["buffers", "Buffers", 5], ["other", "Other", 6],
];

// Counters since the start; what is shown is how they change.
function countersOf(stats) {
  const counters = { reads: 0, writes: 0, scans: 0, other: 0 };
  for (const kinds of Object.values(stats.server.requests)) {
    for (const [kind, figures] of Object.entries(kinds)) {
      const into = { get: "reads", put: "writes", delete: "writes", batch: "writes", scan: "scans" }[kind] ?? "other";
      counters[into] += figures.count;
    }
  }
  return { ...counters, commits: stats.commits, stall: stats.stall_seconds, slow: stats.slowdown_seconds };
}

function memoryOf(stats) {
  const parts = {
    memtables: stats.memory_memtable,
    cache: stats.memory_cache,
    index: stats.memory_index,
    transactions: stats.memory_transaction,
    buffers: stats.memory_buffers,
    other: stats.memory_readers + stats.memory_unused,
  };
  return { parts, used: stats.memory_used, budget: stats.memory_budget };
}

// Of reads and of writes since the last sample, what so many of them took at most: of the kind and
// protocol that had the most.
function latencyOf(stats) {
  const busiest = (kinds) => {
    let best = {};
    for (const protocol of Object.values(stats.server.recent ?? {})) {
      for (const kind of kinds) if (protocol[kind].count > (best.count ?? 0)) best = protocol[kind];
    }
    return best;
  };
  return { reads: busiest(["get"]), writes: busiest(["put", "delete", "batch"]) };
}

// The store of a History keyspace's older versions has figures of its own, by this name.
const archiveOf = (name) => `${name} (versions)`;

export function archive(name) {
  return state.latest?.stats.keyspaces.find((found) => found.name === archiveOf(name)) ?? null;
}

function totalsOf({ keyspaces, server }) {
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const archives = new Set(keyspaces.filter(({ structure }) => structure === "history").map(({ name }) => archiveOf(name)));
  const named = keyspaces.filter(({ name }) => !archives.has(name));
  return { named, entries: sum(named.map((found) => found.entries_estimate)), connections: sum(Object.values(server.connections)) };
}

export function sampleOf(stats, before) {
  const at = Date.now();
  const counters = countersOf(stats);
  const passed = before ? (at - before.at) / 1000 : NaN;
  const rates = {};
  for (const [name, value] of Object.entries(counters)) {
    const change = before ? value - before.counters[name] : NaN;
    // A server that was started again counts from nothing.
    rates[name] = passed > 0 && change >= 0 ? change / passed : NaN;
  }
  const amplification = { write: stats.write_amplification, read: stats.read_amplification, space: stats.space_amplification };
  return { at, stats, counters, rates, amplification, memory: memoryOf(stats), latency: latencyOf(stats), totals: totalsOf(stats) };
}

function take(event) {
  if (event.event !== "stats") return;
  const sample = sampleOf(JSON.parse(event.data), samples.at(-1));
  samples.push(sample);
  while (samples[0].at < sample.at - WINDOW - 5000) samples.shift();
  Object.assign(state, { latest: sample, problem: null });
  tell();
}

// Asks for them, if they are not on their way: again where they were refused, as there may be
// another token by now.
export async function begin() {
  if (isOn) return;
  isOn = true;
  try {
    await follow("/v1/stats/stream?interval=1", { signal: new AbortController().signal, quietFor: QUIET_FOR, onEvent: take });
  } catch (error) {
    isOn = false;
    state.problem = error;
    tell();
  }
}
