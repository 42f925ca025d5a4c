// Charts of the last minutes, on canvas. Their legend is the read-out: it says the latest figures, or
// those under the pointer or the arrow keys, which all charts share, so that one moment can be looked
// at across them.

import { h } from "./dom.js";
import { clock } from "./format.js";

export const WINDOW = 300_000;
// Samples further apart than this are not joined.
const GAP = 4000;
// So many times what is used, a limit is out of sight.
const FAR = 4;
const PAD = { left: 2, right: 4, top: 16, bottom: 18 };
// As long as there is less to show, less than all of that is drawn, but not less than this.
const WINDOW_MIN = 60_000;

// The moment that is looked at, or null for the latest.
const looked = { at: null, charts: new Set() };

function look(at) {
  looked.at = at;
  for (const chart of looked.charts) chart.schedule();
}

// The lines of an axis: round numbers, the last at or above `value`. Sizes are round in powers of two.
function roundLines(value, base) {
  const round = base === 10 ? 10 : 1024;
  const power = round ** Math.floor(Math.log(value) / Math.log(round));
  const tops = base === 10 ? [[1, 2], [2, 2], [3, 3], [4, 4], [6, 3], [8, 4], [10, 2]]
    : Array.from({ length: 10 }, (_, bit) => [[2 ** bit, 4], [3 * 2 ** (bit - 1), 3]]).flat();
  const [top, parts] = tops.sort(([left], [right]) => left - right).find(([step]) => step * power >= value * 0.999) ?? [round, 4];
  return Array.from({ length: parts }, (_, index) => ((index + 1) * top * power) / parts);
}

const finite = (value) => (Number.isFinite(value) ? value : 0);

// `series` are `{ name, colour: 1..6, of: (sample) => number | null }`. Stacked ones are areas; a
// limit is a dashed line. `log` scales by tenfolds from `least` on.
export class Chart {
  constructor({ title, hint = "", series, unit, stacked = false, limit = null, log = false, base = 10, least = 1 }) {
    Object.assign(this, { title, series, unit, stacked, limit, log, base, least, samples: [], scheduled: 0 });
    this.canvas = h("canvas", { tabindex: 0, role: "img", on: {
      pointermove: (event) => this.point(event),
      pointerleave: () => look(null),
      keydown: (event) => this.key(event),
      blur: () => look(null),
    } });
    this.when = h("span", { class: "chart-when" });
    this.said = h("span", { class: "unseen", "aria-live": "polite" });
    this.swatches = [];
    this.figures = [];
    const legend = series.map(({ name, colour }) => {
      const swatch = h("span", { class: `swatch c${colour}` });
      const figure = h("span", { class: "figure" }, "–");
      this.swatches.push(swatch);
      this.figures.push(figure);
      return h("li", {}, swatch, h("span", { class: "name" }, name), figure);
    });
    if (limit) {
      this.limitFigure = h("span", { class: "figure" }, "–");
      legend.push(h("li", {}, h("span", { class: "swatch dashed" }), h("span", { class: "name" }, limit.name), this.limitFigure));
    }
    this.element = h("figure", { class: "card chart" },
      h("figcaption", {}, h("h2", { title: hint || null }, title), this.when),
      h("div", { class: "chart-area" }, this.canvas), h("ul", { class: "legend" }, legend), this.said);
    this.sized = new ResizeObserver(() => this.schedule());
    this.sized.observe(this.canvas);
    looked.charts.add(this);
  }

  close() {
    looked.charts.delete(this);
    this.sized.disconnect();
    cancelAnimationFrame(this.scheduled);
  }

  show(samples) {
    this.samples = samples;
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      this.draw();
    });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    look(this.end() - this.window() * (1 - Math.min(1, Math.max(0, share))));
  }

  key(event) {
    const { samples } = this;
    const at = looked.at === null ? samples.length - 1 : this.nearest(looked.at);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: samples.length - 1 }[event.key];
    if (event.key === "Escape" && looked.at !== null) {
      look(null);
    } else if (to !== undefined && samples.length) {
      look(samples[Math.min(samples.length - 1, Math.max(0, to))].at);
      this.said.textContent = this.summary();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  end() {
    return this.samples.at(-1)?.at ?? Date.now();
  }

  window() {
    return Math.min(WINDOW, Math.max(WINDOW_MIN, this.end() - (this.samples[0]?.at ?? Infinity)));
  }

  nearest(at) {
    let best = this.samples.length - 1;
    this.samples.forEach((sample, index) => {
      if (Math.abs(sample.at - at) < Math.abs(this.samples[best].at - at)) best = index;
    });
    return best;
  }

  read() {
    return this.samples[looked.at === null ? this.samples.length - 1 : this.nearest(looked.at)];
  }

  summary() {
    const sample = this.read();
    if (!sample) return `${this.title}: no figures yet`;
    const parts = this.series.map(({ name, of }) => `${name} ${this.figureOf(of(sample))}`);
    if (this.limit) parts.push(`${this.limit.name} ${this.figureOf(this.limit.of(sample))}`);
    return `${this.title} at ${clock(new Date(sample.at))}: ${parts.join(", ")}`;
  }

  figureOf(value) {
    return Number.isFinite(value) ? this.unit(value) : "–";
  }

  legend() {
    const sample = this.read();
    this.series.forEach(({ of }, index) => {
      this.figures[index].textContent = sample ? this.figureOf(of(sample)) : "–";
    });
    if (this.limit) this.limitFigure.textContent = sample ? this.figureOf(this.limit.of(sample)) : "–";
    this.when.textContent = looked.at === null || !sample ? "" : clock(new Date(sample.at));
    this.canvas.setAttribute("aria-label", this.summary());
  }

  // Where a value is, as a share of the height; and the values at which lines are drawn.
  scale() {
    let most = 0;
    let fewest = Infinity;
    for (const sample of this.samples) {
      let sum = 0;
      for (const { of } of this.series) {
        const value = finite(of(sample));
        sum = this.stacked ? sum + value : Math.max(sum, value);
        if (value > 0) fewest = Math.min(fewest, value);
      }
      most = Math.max(most, sum);
    }
    // A limit that is far away would make everything else a line at the bottom: its figure has to do.
    const limit = finite(this.limit?.of(this.samples.at(-1) ?? {}));
    if (limit < most * FAR) most = Math.max(most, limit);
    if (this.log) {
      const low = Math.floor(Math.log10(Math.max(Math.min(fewest, most || 1), this.least)));
      const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(most, this.least))));
      const lines = Array.from({ length: high - low }, (_, index) => 10 ** (low + index + 1));
      const step = Math.ceil(lines.length / 4);
      return {
        share: (value) => (value > 0 ? Math.max(0, (Math.log10(value) - low) / (high - low)) : 0),
        lines: lines.filter((_, index) => (lines.length - 1 - index) % step === 0),
      };
    }
    const lines = roundLines(Math.max(most, this.least), this.base);
    return { share: (value) => value / lines.at(-1), lines };
  }

  draw() {
    this.legend();
    const { canvas, samples } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    const density = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(height * density);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(density, 0, 0, density, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    pen.font = `11px ${style.fontFamily}`;
    const end = this.end();
    const span = this.window();
    const inner = { width: width - PAD.left - PAD.right, height: height - PAD.top - PAD.bottom };
    const { share, lines } = this.scale();
    const x = (at) => PAD.left + inner.width * (1 - (end - at) / span);
    const y = (value) => PAD.top + inner.height * (1 - Math.min(1, share(value)));
    this.grid(pen, style, { width, height, inner, lines, x, y, end, span });
    const recent = samples.filter((sample) => sample.at >= end - span);
    const colours = this.swatches.map((swatch) => getComputedStyle(swatch).color);
    if (this.stacked) this.areas(pen, recent, colours, x, y);
    else this.lines(pen, recent, colours, x, y);
    const limit = this.limit && recent.length ? finite(this.limit.of(recent.at(-1))) : 0;
    if (limit > 0 && share(limit) <= 1) {
      const at = Math.round(y(limit)) + 0.5;
      pen.strokeStyle = style.color;
      pen.setLineDash([4, 4]);
      pen.beginPath();
      pen.moveTo(PAD.left, at);
      pen.lineTo(width - PAD.right, at);
      pen.stroke();
      pen.setLineDash([]);
    }
    if (looked.at !== null && recent.length) this.mark(pen, style, colours, { height, x, y });
  }

  grid(pen, style, { width, height, inner, lines, x, y, end, span }) {
    // Colours come by properties of the canvas, since those are resolved for the theme.
    const muted = style.caretColor;
    pen.lineWidth = 1;
    pen.textBaseline = "bottom";
    for (const value of [0, ...lines]) {
      const at = Math.round(value ? y(value) : PAD.top + inner.height) + 0.5;
      pen.strokeStyle = style.borderTopColor;
      pen.beginPath();
      pen.moveTo(PAD.left, at);
      pen.lineTo(width - PAD.right, at);
      pen.stroke();
      if (!value) continue;
      pen.fillStyle = muted;
      pen.textAlign = "left";
      pen.fillText(this.unit(value), PAD.left, at - 2);
    }
    pen.fillStyle = muted;
    pen.textBaseline = "alphabetic";
    const step = [15, 30, 60, 120].map((length) => length * 1000).find((length) => (width * length) / span > 80) ?? 300_000;
    for (let past = 0; past <= span; past += step) {
      const at = x(end - past);
      if (past > 0 && at < 24) break;
      pen.textAlign = past === 0 ? "right" : "center";
      pen.fillText(past === 0 ? "now" : past % 60_000 ? `−${past / 1000} s` : `−${past / 60_000} min`, at, height - 4);
    }
  }

  // Stretches of samples without a gap, and without a figure that is missing.
  stretches(recent, of) {
    const all = [];
    let last = null;
    for (const sample of recent) {
      const value = of(sample);
      if (!Number.isFinite(value)) {
        last = null;
        continue;
      }
      if (!last || sample.at - last.at > GAP) all.push([]);
      all.at(-1).push({ at: sample.at, value });
      last = sample;
    }
    return all;
  }

  lines(pen, recent, colours, x, y) {
    pen.lineWidth = 1.75;
    pen.lineJoin = "round";
    for (let index = this.series.length - 1; index >= 0; index -= 1) {
      pen.strokeStyle = colours[index];
      pen.fillStyle = colours[index];
      for (const stretch of this.stretches(recent, this.series[index].of)) {
        pen.beginPath();
        stretch.forEach(({ at, value }, place) => (place ? pen.lineTo(x(at), y(value)) : pen.moveTo(x(at), y(value))));
        pen.stroke();
        if (index === 0 && !this.log) {
          pen.globalAlpha = 0.1;
          pen.lineTo(x(stretch.at(-1).at), y(0));
          pen.lineTo(x(stretch[0].at), y(0));
          pen.fill();
          pen.globalAlpha = 1;
        }
        const end = stretch.at(-1);
        pen.beginPath();
        pen.arc(x(end.at), y(end.value), stretch.length === 1 ? 2 : 0, 0, 7);
        pen.fill();
      }
    }
  }

  areas(pen, recent, colours, x, y) {
    const sums = recent.map((sample) => {
      let sum = 0;
      return this.series.map(({ of }) => (sum += finite(of(sample))));
    });
    let from = 0;
    for (let to = 1; to <= recent.length; to += 1) {
      if (to < recent.length && recent[to].at - recent[to - 1].at <= GAP) continue;
      for (let index = this.series.length - 1; index >= 0; index -= 1) {
        pen.fillStyle = colours[index];
        pen.beginPath();
        for (let place = from; place < to; place += 1) pen.lineTo(x(recent[place].at), y(sums[place][index]));
        for (let place = to - 1; place >= from; place -= 1) {
          pen.lineTo(x(recent[place].at), y(index ? sums[place][index - 1] : 0));
        }
        pen.fill();
      }
      from = to;
    }
  }

  mark(pen, style, colours, { height, x, y }) {
    const sample = this.read();
    const at = Math.round(x(sample.at)) + 0.5;
    pen.strokeStyle = style.color;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(at, PAD.top);
    pen.lineTo(at, height - PAD.bottom);
    pen.stroke();
    if (this.stacked) return;
    this.series.forEach(({ of }, index) => {
      const value = of(sample);
      if (!Number.isFinite(value)) return;
      pen.fillStyle = colours[index];
      pen.beginPath();
      pen.arc(at, y(value), 3.5, 0, 7);
      pen.fill();
    });
  }
}

// A small bar of shares, for tables and tiles.
export function shares(parts, label) {
  const total = parts.reduce((sum, { size }) => sum + size, 0);
  return h("div", { class: "shares", role: "img", "aria-label": label }, parts.map(({ size, colour, name }) => {
    const part = h("span", { class: `c${colour}`, title: name });
    part.style.flexGrow = total ? size / total : 0;
    return size > 0 && part;
  }));
}
