// What changed between two texts: the longest common subsequence of their lines, or of their words
// where each is one line. Bounded: texts that differ in too many places are not compared.

const CELLS_MAX = 4_000_000;

function pieces(text, by) {
  if (by === "line") return text.split(/(?<=\n)/);
  return text.split(/(\s+|[^\p{L}\p{N}_]+)/u).filter((piece) => piece !== "");
}

// Steps `{ kind: "same" | "added" | "removed", text }`, or null if it would take too long.
export function difference(before, after) {
  const by = before.includes("\n") || after.includes("\n") ? "line" : "word";
  const left = pieces(before, by);
  const right = pieces(after, by);
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < left.length - start && end < right.length - start
    && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const rows = left.length - start - end;
  const columns = right.length - start - end;
  if (rows * columns > CELLS_MAX) return null;

  // longest[i][j]: how much the rests from i and j on have in common.
  const width = columns + 1;
  const longest = new Uint32Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      longest[i * width + j] = left[start + i] === right[start + j]
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }

  const steps = [];
  const push = (kind, text) => {
    const last = steps.at(-1);
    if (last && last.kind === kind) last.text += text;
    else steps.push({ kind, text });
  };
  for (const text of left.slice(0, start)) push("same", text);
  let [i, j] = [0, 0];
  while (i < rows || j < columns) {
    if (i < rows && j < columns && left[start + i] === right[start + j]) {
      push("same", left[start + i]);
      i += 1;
      j += 1;
    } else if (i < rows && (j === columns || longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      push("removed", left[start + i]);
      i += 1;
    } else {
      push("added", right[start + j]);
      j += 1;
    }
  }
  for (const text of left.slice(left.length - end)) push("same", text);
  return { by, steps };
}
