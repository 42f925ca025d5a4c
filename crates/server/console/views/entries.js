// Reading and writing single entries.

import { Problem, ask, demand } from "../api.js";
import { equal, escape, field, fromText, toBase64 } from "../bytes.js";
import { pathOf } from "./keyspace.js";

const queryOf = (pairs) => {
  const given = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${given.map(([name, value]) => `${name}=${escape(fromText(String(value)))}`).join("&")}` : "";
};

// The address of an entry, or of its history. A browser takes `.` and `..` for steps in a path,
// however they are escaped: those go behind it.
export function addressOf(name, key, query = {}, of = "keys") {
  const isStep = [".", ".."].some((step) => equal(key, fromText(step)));
  const place = isStep ? { key_base64: toBase64(key) } : {};
  return `${pathOf(name)}/${of}/${isStep ? "" : escape(key)}${queryOf({ ...place, ...query })}`;
}

// An entry as of now or of a moment, or null. Large values are left out, with their size.
export async function read(name, key, at, signal) {
  // The first key that begins with it is the key itself, if that is there.
  const answer = await ask(`${pathOf(name)}/keys${queryOf({ limit: 1, at })}&prefix=${escape(key)}`, { signal });
  const [found] = answer.entries;
  if (!found || !equal(field(found, "key"), key)) return null;
  const value = field(found, "value");
  return { ...found, key, value, size: value ? value.length : found.value_size };
}

// Its value, whatever its size.
export async function readValue(name, key, at, signal) {
  const response = await demand(addressOf(name, key, { at }), { signal, headers: { Accept: "application/octet-stream" } });
  return new Uint8Array(await response.arrayBuffer());
}

// Writes a value, where the entry is still the one of `stamp`, or where there is none. Status 412
// says that it is not so.
//
// It expires as the keyspace says, or in `ttl` seconds, or when `expires` says: at a time, or "never".
export async function write(name, key, value, { stamp = null, onlyNew = false, ttl = null, expires = null, signal } = {}) {
  const headers = stamp ? { "If-Match": `"${stamp}"` } : {};
  if (onlyNew) headers["If-None-Match"] = "*";
  try {
    await demand(addressOf(name, key, { ttl, expires }), { method: "PUT", body: value, headers, signal });
  } catch (error) {
    if (onlyNew && error.status === 412) throw new Problem(412, error.code, "There is such a key already.");
    throw error;
  }
}

export async function remove(name, key, { stamp, signal }) {
  await demand(addressOf(name, key), { method: "DELETE", headers: { "If-Match": `"${stamp}"` }, signal });
}
