// What part of time is seen, and how times are written.

const CLOSEST_S = 2e-4;

class View {
  constructor(length) {
    this.length = length;
    this.fit();
  }

  fit() { this.show(-0.01 * this.length, 1.01 * this.length); }

  get fitted() { return this.to - this.from >= 1.0199 * this.length; }

  /** Show a time, within the run and not closer than can be told apart. */
  show(from, to) {
    const margin = 0.01 * this.length, most = 1.02 * this.length;
    const wide = Math.min(most, Math.max(Math.min(CLOSEST_S, most), to - from));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - wide / 2, -margin), this.length + margin - wide);
    this.to = this.from + wide;
  }

  /** Make the seen time `factor` times as long; `at` stays where it is. */
  zoom(factor, at = (this.from + this.to) / 2) {
    const wide = Math.min(1.02 * this.length, Math.max(CLOSEST_S, (this.to - this.from) * factor));
    const from = at - (at - this.from) * wide / (this.to - this.from);
    this.show(from, from + wide);
  }

  move(seconds) {
    const wide = this.to - this.from;
    const margin = 0.01 * this.length;
    const from = Math.min(Math.max(this.from + seconds, -margin), this.length + margin - wide);
    this.from = from;
    this.to = from + wide;
  }
}

/** Multiples of 1, 2 or 5 times a power of ten, at most `count` between the two. */
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count);
  if (!(rough > 0)) return { step: 1, at: [from] };
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((times) => times * power >= rough) ?? 10);
  const at = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + 1e-9 * step; n++) at.push(n * step);
  return { step, at };
}

/** A number with as many decimals as its neighbours at distance `step` need. */
function atStep(value, step) {
  const decimals = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9)));
  return (Math.abs(value) < step * 1e-6 ? 0 : value).toLocaleString("en-GB",
    { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).replaceAll(",", "\u202f");
}

const digits = (value) => String(Number(value.toPrecision(3)));

function duration(seconds) {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 120) return `${digits(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** A loss, an accuracy: four digits. */
function measure(value, percent) {
  if (percent) return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2)
    : String(Number(value.toPrecision(4)));
}

