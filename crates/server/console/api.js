// Asking the server: tokens, errors, lost connections, streams of events.

const TOKEN = "lithe-token";
const PAUSE_FIRST = 1000;
const PAUSE_MAX = 30_000;
// Somebody who is there answers in this time whether he is well.
const HEALTH_WITHIN = 10_000;
// A browser has few connections to a server, for all its tabs: one that nobody looks at gives its own back.
const HIDDEN_FOR = 5000;

// An answer that is not what was asked for, or none at all (status 0).
export class Problem extends Error {
  constructor(status, code, message, detail = {}) {
    super(message);
    Object.assign(this, { status, code, detail });
  }
}

export function isAbort(error) {
  return error?.name === "AbortError";
}

// Tokens: for this tab alone, and until it is closed.
export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

// Asks who is there; set by the page. Several requests wait for one answer.
let prompt = async () => false;
let asked = null;

export function onTokenNeeded(ask) {
  prompt = ask;
}

async function anotherToken(than) {
  if (token() !== than) return true;
  asked ??= prompt(Boolean(than)).finally(() => {
    asked = null;
  });
  return asked;
}

// The connection: `{ lost, retryAt }`, told to whoever listens.
export const connection = { lost: false, retryAt: 0 };
const listeners = new Set();

export function onConnection(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener(connection);
}

export function sleep(time, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(done, time);
    signal?.addEventListener("abort", done, { once: true });
  });
}

let wake = null;

// Looks, with growing pauses, whether the server is there again.
async function probe() {
  for (let pause = PAUSE_FIRST; connection.lost; pause = Math.min(pause * 2, PAUSE_MAX)) {
    connection.retryAt = Date.now() + pause;
    tell();
    const woken = new AbortController();
    wake = () => woken.abort();
    await sleep(pause, woken.signal);
    try {
      await fetch("/health", { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(HEALTH_WITHIN) });
      found();
    } catch {
      // Not yet.
    }
  }
}

export function retryNow() {
  wake?.();
}

function lost() {
  if (connection.lost) return;
  connection.lost = true;
  probe();
}

function found() {
  if (!connection.lost) return;
  connection.lost = false;
  tell();
}

async function problemOf(response) {
  let said = null;
  try {
    said = await response.json();
  } catch {
    // Not JSON: its status has to do.
  }
  const error = said?.error;
  if (typeof error === "string") return new Problem(response.status, "error", error);
  const message = error?.message ?? `${response.status} ${response.statusText}`.trim();
  return new Problem(response.status, error?.code ?? "error", message, error ?? {});
}

// A request, with the token there is; with another one, if that is refused. Any answer is returned.
export async function send(path, { method = "GET", json, body, headers = {}, signal } = {}) {
  for (;;) {
    const used = token();
    const head = new Headers(headers);
    if (used) head.set("Authorization", `Bearer ${used}`);
    if (json !== undefined) head.set("Content-Type", "application/json");
    else if (body !== undefined && !head.has("Content-Type")) head.set("Content-Type", "application/octet-stream");
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: head,
        body: json === undefined ? body : JSON.stringify(json),
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal,
      });
    } catch (error) {
      if (isAbort(error)) throw error;
      lost();
      throw new Problem(0, "unreachable", "The server cannot be reached.");
    }
    found();
    if (response.status !== 401) return response;
    const problem = await problemOf(response);
    if (!(await anotherToken(used))) throw problem;
  }
}

// A request whose answer is JSON, or nothing. What is refused is thrown.
export async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  const response = await send(path, { ...options, headers });
  if (!response.ok) throw await problemOf(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

// A request whose answer is what it is.
export async function demand(path, options) {
  const response = await send(path, options);
  if (!response.ok) throw await problemOf(response);
  return response;
}

// Events out of a body, as they come: `{ id, event, data }`. Comments are passed over.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { event: "message", data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      // A lone \r at the end may be half of an \r\n.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          // One without data is no event, but its id counts.
          if (event.data.length || event.id) yield { ...event, data: event.data.join("\n") };
          event = { event: "message", data: [] };
          continue;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "data") event.data.push(text);
        else if (name === "event" || name === "id") event[name] = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Until the page is looked at, or `signal` says so.
async function untilShown(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}

// Ends one try at a stream: when the page is hidden for a while, or nothing has come for so long.
class Watch {
  constructor(quietFor) {
    this.abort = new AbortController();
    this.quietFor = quietFor;
    this.isQuiet = false;
    this.look = () => {
      clearTimeout(this.hidden);
      if (document.hidden) this.hidden = setTimeout(() => this.abort.abort(), HIDDEN_FOR);
    };
    document.addEventListener("visibilitychange", this.look);
    this.look();
    this.heard();
  }

  heard() {
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => {
      this.isQuiet = true;
      this.abort.abort();
    }, this.quietFor);
  }

  end() {
    clearTimeout(this.hidden);
    clearTimeout(this.quiet);
    document.removeEventListener("visibilitychange", this.look);
  }
}

// Follows a stream of events until `signal` says so, as long as the page is looked at. When it
// breaks off it is asked for again from the last event on, with growing pauses; so it is when
// nothing has come for `quietFor` milliseconds, as the server then has more to say than that.
// Ends with what the server refuses.
export async function follow(path, { signal, quietFor, onEvent, onOpen = () => {}, onBreak = () => {} }) {
  let last = null;
  let pause = PAUSE_FIRST;
  while (!signal.aborted) {
    await untilShown(signal);
    if (signal.aborted) return;
    const watch = new Watch(quietFor);
    try {
      const headers = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
      const response = await demand(path, { signal: AbortSignal.any([signal, watch.abort.signal]), headers });
      onOpen();
      for await (const event of eventsOf(response.body)) {
        watch.heard();
        pause = PAUSE_FIRST;
        if (event.id) last = event.id;
        if (!event.data) continue;
        try {
          onEvent(event);
        } catch (error) {
          // A mistake of the page, and none of the stream.
          reportError(error);
        }
        if (signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (watch.isQuiet) lost();
      else if (isAbort(error)) continue; // Nobody looks.
      const refused = error instanceof Problem && error.status >= 400 && error.status < 500;
      if (refused && error.status !== 429) throw error;
    } finally {
      watch.end();
    }
    onBreak();
    await sleep(pause, signal);
    pause = Math.min(pause * 2, PAUSE_MAX);
  }
}
