// Keys and values are bytes. In JSON they come as `name`, where they are UTF-8, or as `name_base64`.

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const EMPTY = new Uint8Array();

export function fromText(text) {
  return encoder.encode(text);
}

// The text that these bytes are, or null where they are none.
export function toText(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

export function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(binary);
}

// The bytes of a field, or null where there are none.
export function field(object, name) {
  if (typeof object[name] === "string") return fromText(object[name]);
  const encoded = object[`${name}_base64`];
  return typeof encoded === "string" ? fromBase64(encoded) : null;
}

// The fields of JSON that say these bytes.
export function asField(name, bytes) {
  const text = toText(bytes);
  return text === null ? { [`${name}_base64`]: toBase64(bytes) } : { [name]: text };
}

export function equal(left, right) {
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}

const PLAIN = new Set(fromText("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~."));

// For a segment of a path, or a value of a query: every byte that is not plain is escaped.
export function escape(bytes) {
  let out = "";
  for (const byte of bytes) {
    if (PLAIN.has(byte)) out += String.fromCharCode(byte);
    else out += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return out;
}

export function unescape(text) {
  const out = [];
  const raw = fromText(text);
  for (let at = 0; at < raw.length; at += 1) {
    const pair = raw[at] === 0x25 ? String.fromCharCode(raw[at + 1], raw[at + 2]) : "";
    if (/^[0-9a-f]{2}$/i.test(pair)) {
      out.push(parseInt(pair, 16));
      at += 2;
    } else {
      out.push(raw[at]);
    }
  }
  return Uint8Array.from(out);
}

// What cannot be seen, or turns the direction of text, is shown as an escape.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function escaped(char) {
  const code = char.codePointAt(0);
  if (char === "\n") return "\\n";
  if (char === "\t") return "\\t";
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

// One line to be read by people: text as it is, other bytes as escapes.
export function shown(bytes, most = 256) {
  const part = bytes.length > most ? bytes.subarray(0, most) : bytes;
  const more = bytes.length > most ? "…" : "";
  let text = toText(part);
  // A character may have been cut in two.
  for (let cut = 1; text === null && more && cut < 4; cut += 1) {
    text = toText(part.subarray(0, part.length - cut));
  }
  if (text !== null) return text.replace(HIDDEN, escaped) + more;
  let out = "";
  for (const byte of part) {
    out += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  }
  return out + more;
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

// Bytes of hex digits, in pairs; null where they are none.
export function fromHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) return null;
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

// Offset, sixteen bytes, and what of them can be read, a line.
export function dump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.subarray(at, at + 16);
    const text = Array.from(row, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·"));
    lines.push(`${at.toString(16).padStart(6, "0")}  ${toHex(row).padEnd(47)}  ${text.join("")}`);
  }
  return lines.join("\n");
}
