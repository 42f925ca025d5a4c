// JSON as it is written: numbers of any size and doubled names stay as they are, since only what is
// between the words is changed.

import { h } from "../dom.js";

const DEPTH_MAX = 64;
const WORDS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// Whether it is an object, a list, or another value of JSON.
export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export function compact(text) {
  return (text.match(WORDS) ?? []).join("");
}

export function pretty(text) {
  const words = text.match(WORDS) ?? [];
  let depth = 0;
  let out = "";
  // What is nested deeper is not moved further: its size would grow with the square of the depth.
  const line = () => `\n${"  ".repeat(Math.min(depth, DEPTH_MAX))}`;
  words.forEach((word, index) => {
    const isEmpty = /[}\]]/.test(words[index + 1] ?? "");
    if (word === "{" || word === "[") {
      depth += 1;
      out += isEmpty ? word : word + line();
    } else if (word === "}" || word === "]") {
      depth -= 1;
      out += /[{[]/.test(words[index - 1]) ? word : line() + word;
    } else if (word === ",") {
      out += word + line();
    } else {
      out += word === ":" ? ": " : word;
    }
  });
  return out;
}

// Its words in colours.
export function painted(text) {
  const parts = [];
  let from = 0;
  for (const { 0: word, index } of text.matchAll(WORDS)) {
    parts.push(text.slice(from, index));
    from = index + word.length;
    const isName = word[0] === '"' && /^\s*:/.test(text.slice(from, from + 8));
    const kind = isName ? "key" : word[0] === '"' ? "string" : /^[-\d]/.test(word) ? "number" : /^[tfn]/.test(word) ? "word" : null;
    parts.push(kind ? h("span", { class: `t-${kind}` }, word) : word);
  }
  parts.push(text.slice(from));
  return parts;
}
