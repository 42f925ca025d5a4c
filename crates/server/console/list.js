// A list of any length, of which only the rows in sight are elements.

import { h, replace } from "./dom.js";

const BEYOND = 8;
let lists = 0;

// `row(item)` makes what stands in a row; `onOpen(item, index)` is for a click or Enter; `onEnd` is
// called when the end comes near.
export class List {
  constructor({ label, height, row, onOpen, onEnd = () => {}, none = "Nothing here" }) {
    Object.assign(this, { height, row, onOpen, onEnd, none });
    this.items = [];
    this.active = -1;
    this.chosen = null;
    this.id = `list-${(lists += 1)}`;
    this.space = h("div", { class: "list-space", role: "presentation" });
    this.element = h("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": label, on: {
      scroll: () => this.paint(),
      keydown: (event) => this.key(event),
      click: (event) => this.click(event),
    } }, this.space);
    this.sized = new ResizeObserver(() => this.paint());
    this.sized.observe(this.element);
  }

  // Other rows; where they begin with those of before, what is in sight stays.
  show(items, { keep = false } = {}) {
    this.items = items;
    if (!keep) {
      this.active = -1;
      this.element.scrollTop = 0;
    }
    this.paint();
  }

  // Marks what `is` says as chosen.
  choose(is) {
    this.chosen = is;
    this.paint();
  }

  rowHeight() {
    return matchMedia("(max-width: 760px)").matches ? this.height + 16 : this.height;
  }

  paint() {
    const { items, element } = this;
    const height = this.rowHeight();
    if (items.length === 0) {
      this.space.style.height = "auto";
      replace(this.space, this.none && h("div", { class: "list-none" }, this.none));
      return;
    }
    const first = Math.max(0, Math.floor(element.scrollTop / height) - BEYOND);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + element.clientHeight) / height) + BEYOND);
    this.space.style.height = `${items.length * height}px`;
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const chosen = this.chosen?.(items[index]) ?? false;
      const made = h("div", {
        class: `row ${index === this.active ? "active" : ""}`, role: "option", id: `${this.id}-${index}`,
        "data-index": index, "aria-selected": String(chosen), "aria-setsize": items.length, "aria-posinset": index + 1,
      }, this.row(items[index]));
      made.style.top = `${index * height}px`;
      made.style.height = `${height}px`;
      rows.push(made);
    }
    replace(this.space, rows);
    if (this.active >= 0) element.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
    else element.removeAttribute("aria-activedescendant");
    if (last + 40 >= items.length) this.onEnd();
  }

  move(to) {
    if (this.items.length === 0) return;
    this.active = Math.min(this.items.length - 1, Math.max(0, to));
    const height = this.rowHeight();
    const { element } = this;
    const top = this.active * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight;
    this.paint();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const screen = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
    const moves = {
      ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: screen, PageUp: -screen, Home: -Infinity, End: Infinity,
    };
    if (event.key in moves) this.move(this.active + moves[event.key]);
    else if (event.key === "Enter" && this.active >= 0) this.onOpen(this.items[this.active], this.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  click(event) {
    const made = event.target.closest(".row");
    if (!made || event.target.closest("a, button")) return;
    this.active = Number(made.dataset.index);
    this.onOpen(this.items[this.active], this.active);
    this.paint();
  }

  close() {
    this.sized.disconnect();
  }
}
