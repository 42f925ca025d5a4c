// What changed between two values, shown.

import { dump, toText } from "../bytes.js";
import { difference } from "../diff.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { isJson, pretty } from "./json.js";

const SIZE_MAX = 256 << 10;
// Lines around what changed.
const AROUND = 3;

// Both as texts that can be compared: JSON by its parts, what is no text by its bytes.
function texts(before, after) {
  const [left, right] = [toText(before), toText(after)];
  if (left === null || right === null) return [dump(before), dump(after)];
  if (isJson(left) && isJson(right)) return [pretty(left), pretty(right)];
  return [left, right];
}

function around(lines, isFirst, isLast) {
  const head = isFirst ? [] : lines.slice(0, AROUND);
  const tail = isLast ? [] : lines.slice(-AROUND);
  if (lines.length <= head.length + tail.length + 1) return lines.map((line) => h("span", { class: "line" }, line));
  const left = lines.length - head.length - tail.length;
  const said = (line) => h("span", { class: "line" }, line);
  return [head.map(said), h("span", { class: "line muted" }, `… ${left} lines that are the same`), tail.map(said)];
}

export function changes(before, after) {
  if (before.length + after.length > SIZE_MAX) return h("p", { class: "muted" }, `Too large to be compared: ${format.bytes(before.length)} and ${format.bytes(after.length)}.`);
  const found = difference(...texts(before, after));
  if (found === null) return h("p", { class: "muted" }, "They differ in too many places to be compared.");
  if (found.steps.every(({ kind }) => kind === "same")) return h("p", { class: "muted" }, "They are the same.");
  if (found.by === "word") {
    const parts = found.steps.map(({ kind, text }) => (kind === "same" ? text : h(kind === "added" ? "ins" : "del", { class: kind }, text)));
    return h("pre", { class: "value", tabindex: 0 }, parts);
  }
  const parts = found.steps.map(({ kind, text }, index) => {
    const lines = text.replace(/\n$/, "").split("\n");
    if (kind === "same") return around(lines, index === 0, index === found.steps.length - 1);
    return lines.map((line) => h("span", { class: `line ${kind}` }, line));
  });
  return h("pre", { class: "value", tabindex: 0 }, parts);
}
