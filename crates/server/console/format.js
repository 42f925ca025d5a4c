// Figures, as people read them.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function three(number) {
  if (number >= 100 || Number.isInteger(number)) return number.toFixed(0);
  return number.toFixed(number >= 10 ? 1 : 2);
}

export function bytes(size) {
  if (!Number.isFinite(size)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let left = size;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit ? three(left) : Math.round(left)} ${units[unit]}`;
}

export function count(number) {
  return Number.isFinite(number) ? grouped.format(number) : "–";
}

// 12.3 k, for axes and tiles.
export function short(number) {
  if (!Number.isFinite(number)) return "–";
  for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (number >= unit) return three(name === " k" ? number / 1e3 : number / unit) + name;
  }
  return number >= 1000 ? grouped.format(number) : three(Math.round(number * 100) / 100);
}

// Of entries it is known how many there are at most, without counting them.
export function atMost(number, as = count) {
  return Number.isFinite(number) ? `≤ ${as(number)}` : as(number);
}

export function ratio(number) {
  return Number.isFinite(number) ? `${number.toFixed(2)}×` : "–";
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return Number.isFinite(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : "–";
}

export function seconds(length) {
  if (!Number.isFinite(length)) return "–";
  if (length === 0) return "0 ms";
  if (length < 1e-3) return `${three(length * 1e6)} µs`;
  if (length < 1) return `${three(length * 1e3)} ms`;
  if (length < 120) return `${three(length)} s`;
  if (length < 7200) return `${Math.round(length / 60)} min`;
  if (length < 172800) return `${Math.round(length / 3600)} h`;
  return `${Math.round(length / 86400)} days`;
}

// The time within a stamp: its upper 48 bits are milliseconds since 1970.
export function stampTime(stamp) {
  try {
    return new Date(Number(BigInt(stamp) >> 16n));
  } catch {
    return new Date(NaN);
  }
}

const two = (number) => String(number).padStart(2, "0");

export function date(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function clock(at, digits = 0) {
  const base = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return digits ? `${base}.${String(at.getMilliseconds()).padStart(3, "0")}` : base;
}

export function time(at) {
  return Number.isNaN(at.getTime()) ? "–" : `${date(at)} ${clock(at, 3)}`;
}

// "3 min ago", or "in 20 s".
export function ago(at) {
  const past = (Date.now() - at.getTime()) / 1000;
  if (Number.isNaN(past)) return "–";
  if (Math.abs(past) < 1) return "now";
  const length = seconds(Math.max(1, Math.round(Math.abs(past))));
  return past > 0 ? `${length} ago` : `in ${length}`;
}
