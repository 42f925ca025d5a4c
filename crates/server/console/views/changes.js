// The change feed, live: what is committed, as it is committed.

import { follow, isAbort } from "../api.js";
import { escape, field, fromText, shown } from "../bytes.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { List } from "../list.js";
import { go } from "../router.js";
import { button, messageOf, page, search, select } from "../ui.js";
import { fetchKeyspaces } from "./keyspaces.js";

const KEPT = 2000;
const PAINT_EVERY = 250;
// The server says every ten seconds how far it is.
const QUIET_FOR = 45_000;
const SINCE = [["0", "From now on"], ["60", "Since 1 min ago"], ["600", "Since 10 min ago"], ["3600", "Since 1 h ago"]];

// The stamp of so many seconds ago.
function stampBefore(length) {
  return String(BigInt(Date.now() - length * 1000) << 16n);
}

// The operations of an event, as rows; a gap is a row of its own.
function rowsOf(event) {
  const { stamp, message, changes = [] } = JSON.parse(event.data);
  if (event.event !== "commit") return [{ op: event.event, stamp, said: message }];
  return changes.map((one) => {
    const [from, to] = [field(one, "from"), field(one, "to")];
    const said = from && `${shown(from)} … ${to ? shown(to) : "the end"}`;
    return { op: one.op, keyspace: one.keyspace, key: field(one, "key"), value: field(one, "value"), size: one.value_size, stamp, said };
  });
}

export function changes(route, signal) {
  const view = new Changes(signal);
  view.begin();
  return view;
}

class Changes {
  constructor(signal) {
    this.outer = signal;
    this.title = "Changes";
    this.rows = [];
    this.waiting = [];
    this.isPaused = false;
    this.keyspace = "";
    this.since = "0";
    this.list = new List({ label: "Changes, the newest first", height: 38, row: (row) => this.row(row), onOpen: (row) => this.open(row), none: "Waiting for changes…" });
    const filter = search("Filter by key or value", { input: () => this.paint() });
    this.filter = filter.field;
    this.pause = button("Pause", () => this.togglePause(), { glyph: "pause", title: "Pause (p)" });
    this.standing = h("span", { role: "status" }, "Connecting…");
    this.choice = h("span", {});
    const since = select(SINCE, this.since, (value) => {
      this.since = value;
      this.begin();
    }, "From when on");
    const clear = button("Clear", () => {
      this.rows = [];
      this.waiting = [];
      this.paint();
    });
    this.element = page("Changes", { lead: "What is committed, as it is committed: the newest is on top.", actions: [this.pause, clear] },
      h("div", { class: "bar-of-fields" }, this.choice, since, filter.element),
      h("div", { class: "card feed" }, this.list.element, h("div", { class: "pane-foot" }, this.standing)));
    fetchKeyspaces(signal).then((all) => this.choice.append(select([["", "All keyspaces"], ...all.map(({ name }) => [name, name])], "", (name) => {
      this.keyspace = name;
      this.begin();
    }, "Keyspace")), () => {});
  }

  async begin() {
    this.stream?.abort();
    const stream = new AbortController();
    this.stream = stream;
    this.rows = [];
    this.waiting = [];
    this.paint();
    const query = [this.since !== "0" && `since=${stampBefore(Number(this.since))}`, this.keyspace && `keyspaces=${escape(fromText(this.keyspace))}`].filter(Boolean);
    try {
      await follow(`/v1/changes${query.length ? `?${query.join("&")}` : ""}`, {
        signal: AbortSignal.any([this.outer, stream.signal]),
        quietFor: QUIET_FOR,
        onOpen: () => this.say("Live"),
        onBreak: () => this.say("The stream broke off: it is taken up again…"),
        onEvent: (event) => this.take(event),
      });
    } catch (error) {
      if (!isAbort(error) && !stream.signal.aborted) this.say(messageOf(error));
    }
  }

  say(text) {
    this.status = text;
    this.showStanding();
  }

  showStanding() {
    const waiting = this.waiting.length ? `, ${format.count(this.waiting.length)} waiting` : "";
    this.standing.textContent = `${this.isPaused ? "Paused" : this.status ?? ""}${waiting} · ${format.count(this.rows.length)} kept`;
  }

  take(event) {
    this.waiting.push(...rowsOf(event));
    if (this.waiting.length > KEPT) this.waiting.splice(0, this.waiting.length - KEPT);
    this.soon ??= setTimeout(() => {
      this.soon = null;
      if (!this.isPaused) this.paint();
      else this.showStanding();
    }, PAINT_EVERY);
  }

  togglePause() {
    this.isPaused = !this.isPaused;
    this.pause.lastChild.textContent = this.isPaused ? "Go on" : "Pause";
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
    this.paint();
  }

  paint() {
    const { list } = this;
    const top = list.element.scrollTop;
    let added = 0;
    if (!this.isPaused) {
      added = this.waiting.length;
      this.rows = [...this.waiting.reverse(), ...this.rows].slice(0, KEPT);
      this.waiting = [];
    }
    const wanted = this.filter.value.toLowerCase();
    const has = (row) => [row.key, row.value].some((bytes) => bytes && shown(bytes, 4096).toLowerCase().includes(wanted));
    const rows = wanted ? this.rows.filter(has) : this.rows;
    // Who reads further down is not moved by what comes on top.
    if (top > 0 && !wanted) list.element.scrollTop = top + added * list.rowHeight();
    if (list.active >= 0) list.active += added;
    list.show(rows, { keep: true });
    this.showStanding();
  }

  row(row) {
    const at = h("span", { class: "aside" }, row.stamp ? format.clock(format.stampTime(row.stamp), 3) : "");
    const op = h("span", { class: `op ${row.op}` }, row.op);
    if (!row.key) return [at, op, row.keyspace && h("span", { class: "aside space-name" }, row.keyspace), h("span", { class: "preview" }, row.said ?? "")];
    return [at, op, h("span", { class: "aside space-name only-wide" }, row.keyspace), h("div", { class: "two-lines" }, h("span", { class: "key" }, shown(row.key) || "(empty)"),
      h("span", { class: "preview" }, row.value ? shown(row.value, 120) : row.size ? format.bytes(row.size) : ""))];
  }

  open(row) {
    if (row.key && row.keyspace) go(["keys", row.keyspace], { key: row.key });
  }

  key(pressed) {
    if (pressed !== "p" && pressed !== " ") return false;
    this.togglePause();
    return true;
  }

  close() {
    clearTimeout(this.soon);
    this.stream?.abort();
    this.list.close();
  }
}
