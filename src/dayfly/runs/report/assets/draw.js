// Draws bands of workers, by how much room spans have in what is seen of a band.
//
//   close     each span as it is; of those narrower than a pixel, each column of pixels shows the
//             share of its time that each kind took, one upon the other
//   from afar the same of all but wide ones, in bins of some pixels: steps would be a barcode

const MIN_PIXELS = 1.5;
/** Room of a span from which each is drawn as it is; the narrowest that is drawn so from afar; and
 *  the width of a bin there: CSS pixels. */
const CLOSE_PX = 6, WIDE_PX = 12, BIN_PX = 4;

/** What stands on a pixel column's bottom first; in one band, what is first hides what follows. */
const LANES = {
  apart: [["compute"], ["up"], ["down"]],
  joined: [["compute", "up", "down"]],
};

class Painter {
  constructor(context, timeline, colours, pixels) {
    Object.assign(this, { context, timeline, colours });
    this.pixels = pixels; // device pixels a CSS pixel
    this.cover = new Float32Array(0);
    this.drawn = 0; // spans seen
    this.alone = 0; // those of them that are drawn as they are
  }

  /** The kinds of each lane, in order. */
  lanes(apart) {
    const { kinds, rowOf } = this.timeline;
    return LANES[apart ? "apart" : "joined"]
      .map((rows) => rows.flatMap((row) => kinds.filter((kind) => rowOf(kind) === row)));
  }

  /** One lane of a band: `kinds` between x = left and the right border, in device pixels. */
  lane(band, kinds, view, box) {
    const scale = (box.right - box.left) / (view.to - view.from);
    const columns = Math.ceil(box.right - box.left);
    const far = columns < CLOSE_PX * this.pixels * spansSeen(band, kinds, view);
    const least = far ? WIDE_PX * this.pixels : MIN_PIXELS;
    const bins = new Bins(view, scale, columns, far ? Math.round(BIN_PX * this.pixels) : 1);
    const stacked = new Float32Array(bins.count);
    const narrow = [];
    for (const kind of [...kinds].reverse()) {
      const cover = new Float32Array(bins.count);
      this.context.fillStyle = this.colours.fill(kind);
      const any = this.spans(band, kind, view, box, scale, least, bins, cover)
        | this.shares(band, kind, view, scale, bins, cover);
      if (any) narrow.push([kind, cover]);
    }
    for (const [kind, cover] of narrow.reverse()) {
      this.context.fillStyle = this.colours.fill(kind);
      this.columns(cover, stacked, box, bins);
    }
  }

  /** Draws those at least `least` wide and adds the others to `cover`; whether there were such. */
  spans(band, kind, view, box, scale, least, bins, cover) {
    const spans = band.spans.get(kind);
    if (!spans) return false;
    let any = false;
    const last = firstAbove(spans.start, view.to);
    for (let i = firstAbove(spans.end, view.from); i < last; i++) {
      const from = Math.max(0, (spans.start[i] - view.from) * scale);
      const to = Math.min(bins.columns, (spans.end[i] - view.from) * scale);
      this.drawn++;
      if (to - from >= least) {
        const x = Math.round(from);
        this.alone++;
        this.context.fillRect(box.left + x, box.top, Math.max(1, Math.round(to) - x), box.height);
      } else {
        spread(cover, bins.at(from), bins.at(to), 1);
        any = true;
      }
    }
    return any;
  }

  /** Adds the shares of coarse bins to `cover`; whether there were such. */
  shares(band, kind, view, scale, bins, cover) {
    const shares = band.shares.get(kind), { bin, coarse } = this.timeline;
    if (!shares) return false;
    let any = false;
    for (let i = firstAbove(coarse, view.from / bin - 1); i < coarse.length; i++) {
      const from = (coarse[i] * bin - view.from) * scale;
      if (from > bins.columns) break;
      if (!shares[i]) continue;
      const to = Math.min(bins.columns, from + bin * scale);
      spread(cover, bins.at(Math.max(0, from)), bins.at(to), shares[i] / 1000);
      any = true;
    }
    return any;
  }

  columns(cover, stacked, box, bins) {
    for (let x = 0; x < cover.length; x++) {
      const share = Math.min(cover[x], 1 - stacked[x]);
      if (share <= 0.004) continue;
      const bottom = box.top + box.height * (1 - stacked[x]);
      let end = x + 1;
      while (end < cover.length && cover[end] === cover[x] && stacked[end] === stacked[x]) end++;
      const left = bins.left(x);
      this.context.fillRect(box.left + left, bottom - share * box.height, bins.left(end) - left,
        share * box.height);
      for (; x < end; x++) stacked[x] += share;
      x--;
    }
  }

  /** A band's attempts: their ground, and how each ended. */
  ground(band, view, box) {
    const scale = (box.right - box.left) / (view.to - view.from);
    this.context.fillStyle = this.colours.of("--band");
    for (const one of band.attempts) {
      const from = Math.max(box.left, box.left + (one.start - view.from) * scale);
      const to = Math.min(box.right, box.left + (one.end - view.from) * scale);
      if (to > from) this.context.fillRect(from, box.top, Math.max(1, to - from), box.height);
    }
  }

  ends(band, view, box, shown) {
    const scale = (box.right - box.left) / (view.to - view.from);
    for (const one of band.attempts) {
      const x = box.left + (one.end - view.from) * scale;
      if (x < box.left - 8 || x > box.right + 8 || !shown(one.how)) continue;
      const size = Math.max(3.2 * this.pixels, Math.min(6 * this.pixels, box.height * 0.36));
      const mark = { death: cross, lost: cross, "hand-over": arrow, lifetime: arrow }[one.how];
      if (!mark) continue;
      mark(this.context, x, box.top + box.height / 2, size, box, this.colours, this.pixels);
    }
  }

  /** Numbers of steps, in computations that are wide enough. */
  numbers(band, view, box) {
    const spans = band.spans.get("compute");
    if (!spans || box.height < 10 * this.pixels) return;
    const scale = (box.right - box.left) / (view.to - view.from);
    const { context } = this;
    context.fillStyle = this.colours.of("--on-kind");
    context.font = `${Math.min(11 * this.pixels, box.height * 0.8)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const last = firstAbove(spans.start, view.to);
    for (let i = firstAbove(spans.end, view.from); i < last; i++) {
      const from = Math.max(box.left, box.left + (spans.start[i] - view.from) * scale);
      const to = Math.min(box.right, box.left + (spans.end[i] - view.from) * scale);
      if (to - from < 26 * this.pixels) continue;
      const step = stepAt(band, spans.start[i] + 1e-6);
      if (!step || context.measureText(step.number).width > to - from - 6 * this.pixels) continue;
      context.fillText(step.number, (from + to) / 2, box.top + box.height / 2 + 0.5 * this.pixels);
    }
  }
}

/** How many spans of these kinds are seen. */
function spansSeen(band, kinds, view) {
  return kinds.reduce((count, kind) => {
    const spans = band.spans.get(kind);
    return count + (spans ? firstAbove(spans.start, view.to) - firstAbove(spans.end, view.from) : 0);
  }, 0);
}

/** The columns of a lane in bins of `wide`, which stay where they are in time as the view moves. */
class Bins {
  constructor(view, scale, columns, wide) {
    const from = Math.round(view.from * scale);
    this.before = ((from % wide) + wide) % wide; // columns of the first bin that are not seen
    this.count = Math.ceil((columns + this.before) / wide);
    Object.assign(this, { columns, wide });
  }

  /** The place of a column among the bins. */
  at(x) { return (x + this.before) / this.wide; }

  /** The column at which a bin begins, or the border. */
  left(bin) { return Math.min(this.columns, Math.max(0, bin * this.wide - this.before)); }
}

/** Adds `share` of each column between two places. */
function spread(cover, from, to, share) {
  const first = Math.floor(from), last = Math.min(cover.length - 1, Math.floor(to));
  if (first >= cover.length || to <= from) return;
  if (first === last) { cover[first] += (to - from) * share; return; }
  cover[first] += (first + 1 - from) * share;
  for (let x = first + 1; x < last; x++) cover[x] += share;
  cover[last] += (to - last) * share;
}

/** A death: a line through the band, and a cross on it. */
function cross(context, x, y, size, box, colours, pixels) {
  for (const [colour, wide] of [["--card", 3.5], ["--bad", 2]]) {
    context.strokeStyle = colours.of(colour);
    context.lineWidth = wide * pixels;
    context.lineCap = "butt";
    context.beginPath();
    context.moveTo(x, box.top);
    context.lineTo(x, box.top + box.height);
    context.stroke();
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y - size);
    context.lineTo(x - size, y + size);
    context.stroke();
  }
}

/** A hand-over: a line, and an arrow to the successor. */
function arrow(context, x, y, size, box, colours, pixels) {
  context.strokeStyle = colours.of("--card");
  context.fillStyle = colours.of("--ink");
  context.lineWidth = 1.5 * pixels;
  context.lineJoin = "round";
  context.fillRect(x - 0.75 * pixels, box.top, 1.5 * pixels, box.height);
  context.beginPath();
  context.moveTo(x - 0.6 * size, y - size);
  context.lineTo(x + 1.1 * size, y);
  context.lineTo(x - 0.6 * size, y + size);
  context.closePath();
  context.stroke();
  context.fill();
}

/** The page's colours, as they are in the theme of the moment. */
class Colours {
  constructor(context) {
    this.style = getComputedStyle(document.documentElement);
    this.context = context;
    this.known = new Map();
  }

  of(name) {
    if (!this.known.has(name)) {
      this.known.set(name, this.style.getPropertyValue(name).trim());
    }
    return this.known.get(name);
  }

  static variable(kind) {
    const name = `--k-${kind.replaceAll(/[^a-z]+/g, "-")}`;
    const known = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return known ? name : "--k-other";
  }

  /** A colour, or a hatching of it for cold starts. */
  fill(kind) {
    const key = `fill ${kind}`;
    if (!this.known.has(key)) {
      const colour = this.of(Colours.variable(kind));
      this.known.set(key, kind === "cold start" ? this.hatched(colour) : colour);
    }
    return this.known.get(key);
  }

  hatched(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    context.fillStyle = this.of("--band");
    context.fillRect(0, 0, 8, 8);
    context.strokeStyle = colour;
    context.lineWidth = 3.2;
    for (const shift of [-8, 0, 8]) {
      context.beginPath();
      context.moveTo(shift - 2, 10);
      context.lineTo(shift + 10, -2);
      context.stroke();
    }
    return this.context.createPattern(tile, "repeat");
  }
}

