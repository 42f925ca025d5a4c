// A structure, drawn: the tree of Flex and History, the levels of Lsm, and what is still in memory.

import { h, svg } from "../dom.js";
import * as format from "../format.js";
import { shares } from "../chart.js";

const TABLES_MAX = 160;

function level(name, note, drawing) {
  return h("div", { class: "level" }, h("div", {}, h("div", { class: "name" }, name), h("div", { class: "note" }, note)), drawing);
}

function memory(found) {
  if (!(found.memtable_bytes > 0)) return null;
  const sealed = found.sealed_memtables ?? 0;
  return level("Memory", format.bytes(found.memtable_bytes),
    shares([{ name: "Memtables", size: found.memtable_bytes, colour: 3 }], `Memtables: ${format.bytes(found.memtable_bytes)}, ${sealed} of them being flushed`));
}

// Each table as wide as it is large, beside the largest level.
function levels(found, all) {
  const byLevel = new Map();
  for (const table of all) byLevel.set(table.level, [...(byLevel.get(table.level) ?? []), table]);
  const numbers = [...byLevel.keys()].sort((left, right) => left - right);
  const sizes = numbers.map((number) => byLevel.get(number).reduce((sum, { bytes }) => sum + bytes, 0));
  const largest = Math.max(1, ...sizes);
  return numbers.map((number, index) => {
    const tables = byLevel.get(number);
    const row = h("div", { class: "tables-row", role: "img", "aria-label": `${tables.length} tables, ${format.bytes(sizes[index])}` });
    row.style.width = `${Math.max(4, (sizes[index] / largest) * 100)}%`;
    for (const table of tables.slice(0, TABLES_MAX)) {
      const title = `Table ${table.number}: ${format.count(table.entries)} entries, ${format.bytes(table.bytes)}`;
      const made = h("span", { class: `c${1 + (index % 6)}`, title });
      made.style.flexGrow = table.bytes;
      row.append(made);
    }
    const note = `${tables.length}${tables.length > TABLES_MAX ? `, ${TABLES_MAX} drawn,` : ""} ${tables.length === 1 ? "table" : "tables"}, ${format.bytes(sizes[index])}`;
    return level(`${found.structure === "history" ? "Archive " : "Level "}${number}`, note, row);
  });
}

// The tree that finds intervals, these with their runs, and the segments that runs lie in: a scheme,
// in which the runs of an interval and what of the segments is live are as they are on average.
function tree(found) {
  const isWide = matchMedia("(min-width: 760px)").matches;
  const [width, left, step, top] = isWide ? [860, 230, 70, 14] : [360, 4, 82, 30];
  const perInterval = found.runs / Math.max(1, found.intervals);
  const segments = Math.min(found.segments, isWide ? 7 : 4);
  const rows = [
    { title: "Tree", note: "in memory", count: 1, width: 84, height: 16 },
    { title: "Nodes", note: "sizes of what is below", count: 3, width: isWide ? 76 : 60, height: 14 },
    { title: `${format.count(found.intervals)} intervals`, note: `${format.count(found.runs)} runs, ${perInterval.toFixed(1)} an interval`, count: Math.min(isWide ? 9 : 6, found.intervals), width: isWide ? 46 : 38, height: 12 },
    { title: `${format.count(found.segments)} segments`, note: `${format.bytes(found.bytes_on_disk)} on disk`, count: segments, width: isWide ? 70 : 64, height: 16 },
  ];
  const centre = (row, index) => left + ((index + 0.5) / row.count) * (width - left - 4);
  const y = (index) => index * step + top;
  const runs = Math.min(4, Math.max(1, Math.round(perInterval)));
  const parts = [];
  rows.slice(1).forEach((row, above) => {
    const upper = rows[above];
    const from = y(above) + upper.height + (above === 2 ? runs * 7 : 0);
    for (let index = 0; index < Math.max(row.count, upper.count); index += 1) {
      const of = (some) => centre(some, Math.floor((index / Math.max(row.count, upper.count)) * some.count));
      if (row.count && upper.count) parts.push(svg("path", { d: `M${of(upper)} ${from}C${of(upper)} ${from + 16} ${of(row)} ${y(above + 1) - 18} ${of(row)} ${y(above + 1)}` }));
    }
  });
  const live = found.bytes_on_disk > 0 ? Math.min(1, found.bytes_live / found.bytes_on_disk) : 1;
  rows.forEach((row, at) => {
    parts.push(svg("text", { x: 0, y: isWide ? y(at) + 11 : y(at) - 9 }, row.title),
      svg("text", { x: isWide ? 0 : 116, y: isWide ? y(at) + 26 : y(at) - 9, class: "note" }, row.note));
    for (let index = 0; index < row.count; index += 1) {
      const x = centre(row, index) - row.width / 2;
      parts.push(svg("rect", { x, y: y(at), width: row.width, height: row.height, rx: 4, class: at === 3 ? "dead" : "" }));
      if (at === 3) parts.push(svg("rect", { x, y: y(at), width: row.width * live, height: row.height, rx: 4 }));
      for (let run = 0; at === 2 && run < runs; run += 1) {
        parts.push(svg("rect", { x: x + 4, y: y(at) + row.height + 2 + run * 7, width: row.width - 8, height: 5, rx: 2, class: run ? "memory" : "" }));
      }
    }
  });
  const said = rows.map(({ title, note }) => `${title}: ${note}`).join("; ");
  return svg("svg", { viewBox: `0 0 ${width} ${y(3) + 24}`, class: "drawing", role: "img", "aria-label": said }, parts);
}

function space(found) {
  const parts = [
    { name: "Live", size: found.bytes_live, colour: 1 },
    { name: "Dead", size: Math.max(0, found.bytes_dead - (found.bytes_pinned ?? 0)), colour: 6 },
    { name: "Pinned", size: found.bytes_pinned ?? 0, colour: 3 },
  ];
  const said = parts.filter(({ size }) => size > 0).map(({ name, size }) => `${name.toLowerCase()} ${format.bytes(size)}`).join(", ");
  return level("On disk", said || "nothing", shares(parts, `On disk: ${said || "nothing"}`));
}

// `tables` is what the server tells of tables; trees are drawn by their figures.
export function structure(found, tables) {
  return h("div", { class: "levels" }, memory(found), levels(found, tables.tables),
    found.structure !== "lsm" && tree(found), space(found));
}
