// The timeline of all workers on a canvas, its axis above it, and how to move in it.

const AXIS_PX = 54, OVERVIEW_PX = 24, BOTTOM_PX = 4, MOST_PIXELS = 16000;

class TimelineFigure {
  constructor(timeline) {
    this.timeline = timeline;
    this.view = new View(timeline.length);
    this.hidden = new Set();
    this.apart = !timeline.script && timeline.bands.length <= 16; // a script is one lane
    this.axis = document.getElementById("axis");
    this.bands = document.getElementById("bands");
    this.guide = document.getElementById("guide");
    this.frame = document.getElementById("timeline");
    this.fromAddress();
    this.legend();
    this.listen();
    this.draw();
  }

  // ---- layout, in CSS pixels ----

  layout() {
    const count = Math.max(1, this.timeline.bands.length);
    this.width = Math.max(200, this.frame.clientWidth);
    const wide = this.timeline.groups.length ? namesWidth(this.timeline.bands) + 16 : 84;
    this.left = this.width < 2.5 * wide || this.width < 560 ? 34 : wide;
    const room = (few, many) => Math.max(many, Math.min(few, Math.floor(560 / count / 3)));
    this.lane = this.apart ? room(18, 6) : Math.max(3, Math.min(13, Math.floor(2400 / count)));
    this.gap = this.apart ? Math.max(4, Math.min(10, Math.floor(this.lane * 0.6))) : this.lane > 5 ? 2 : 1;
    this.row = (this.apart ? 3 * this.lane + 2 : this.lane) + this.gap;
    this.height = count * this.row + this.timeline.groups.length * GROUP_PX + BOTTOM_PX;
    this.pixels = Math.min(devicePixelRatio || 1, MOST_PIXELS / this.height);
  }

  top(place) {
    const heads = this.timeline.groups.filter(({ first }) => first <= place).length;
    return place * this.row + heads * GROUP_PX + this.gap / 2 + 1;
  }

  /** The place of the band at a height, or -1 where there is none. */
  placeAt(y) {
    return this.timeline.bands.findIndex((_, place) => {
      const top = this.top(place) - this.gap / 2 - 1;
      return y >= top && y < top + this.row;
    });
  }

  x(time) {
    return this.left + (time - this.view.from) / (this.view.to - this.view.from) * this.across;
  }

  time(x) {
    return this.view.from + (x - this.left) / this.across * (this.view.to - this.view.from);
  }

  get across() { return this.width - this.left - 1; }

  // ---- drawing ----

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  sized(canvas, height) {
    canvas.width = Math.round(this.width * this.pixels);
    canvas.height = Math.round(height * this.pixels);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    return context;
  }

  draw() {
    this.layout();
    const context = this.sized(this.bands, this.height);
    this.colours = new Colours(context);
    const painter = new Painter(context, this.timeline, this.colours, this.pixels);
    const shown = painter.lanes(this.apart).map((kinds) => kinds.filter((k) => !this.hidden.has(k)));
    const scaled = (top, height) => ({ left: Math.round(this.left * this.pixels),
      right: Math.round((this.width - 1) * this.pixels), top: Math.round(top * this.pixels),
      height: Math.max(1, Math.round(height * this.pixels)) });
    this.grid(context);
    const whole = this.row - this.gap;
    this.timeline.bands.forEach((band, place) => {
      const top = this.top(place);
      painter.ground(band, this.view, scaled(top, whole));
      shown.forEach((kinds, lane) => painter.lane(band, kinds, this.view,
        scaled(top + lane * (this.lane + 1), this.lane)));
      if (!this.hidden.has("compute")) {
        painter.numbers(band, this.view, scaled(top, this.lane));
      }
      numberPasses(painter, band, this.view, scaled(top, this.lane), this.hidden);
    });
    this.pauses(context, this.height);
    this.timeline.bands.forEach((band, place) => painter.ends(band, this.view,
      scaled(this.top(place), whole), (how) => !this.hidden.has(how)));
    this.names(context);
    this.drawAxis();
    this.drawn = painter.drawn;
    this.alone = painter.alone;
  }

  font(context, px, weight = 400) {
    context.font = `${weight} ${px * this.pixels}px system-ui, sans-serif`;
  }

  names(context) {
    const every = Math.ceil(13 / this.row);
    const short = this.left < 60, labelled = this.apart && this.lane >= 12 && !short;
    context.clearRect(0, 0, this.left * this.pixels - 1, this.bands.height);
    this.font(context, Math.min(12, Math.max(9.5, this.row)));
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = this.colours.of("--soft");
    this.timeline.bands.forEach((band, place) => {
      if (place % every) return;
      const name = short ? band.short : band.name;
      const y = this.top(place) + (labelled ? this.lane : this.row - this.gap) / 2;
      context.fillText(name, (this.left - 9) * this.pixels, (y + 0.5) * this.pixels);
    });
    headGroups(this, context);
    if (!labelled) return;
    this.font(context, 10.5);
    this.timeline.bands.forEach((band, place) => ["up", "down"].forEach((name, lane) => {
      const y = this.top(place) + (lane + 1.5) * (this.lane + 1);
      context.fillText(name, (this.left - 9) * this.pixels, y * this.pixels);
    }));
  }

  ticks() { return ticks(this.view.from, this.view.to, this.across / 95); }

  grid(context) {
    context.fillStyle = this.colours.of("--faint");
    for (const at of this.ticks().at) {
      context.fillRect(Math.round(this.x(at) * this.pixels), 0, this.pixels, this.bands.height);
    }
    this.dashes(context, "checkpoints", "--k-checkpoint");
    this.dashes(context, "rollbacks", "--bad");
    this.dashes(context, "changes", "--ink");
  }

  /** A dashed line through all bands at each checkpoint, rollback or change of plan. */
  dashes(context, kind, colour) {
    if (this.hidden.has(kind)) return;
    context.fillStyle = this.colours.of(colour);
    for (const { at } of this.timeline[kind]) {
      const x = Math.round(this.x(at) * this.pixels);
      for (let y = 0; y < this.bands.height; y += 6 * this.pixels) {
        context.fillRect(x, y, this.pixels, 3 * this.pixels);
      }
    }
  }

  pauses(context, height) {
    for (const { at } of this.timeline.pauses) {
      const x = this.x(at) * this.pixels, wide = 3 * this.pixels;
      context.fillStyle = this.colours.of("--card");
      context.fillRect(x - wide, 0, 2 * wide, height * this.pixels);
      context.fillStyle = this.colours.of("--soft");
      for (const side of [-wide, wide]) {
        for (let y = 0; y < height * this.pixels; y += 8 * this.pixels) {
          context.fillRect(x + side, y, this.pixels, 4 * this.pixels);
        }
      }
    }
  }

  drawAxis() {
    const context = this.sized(this.axis, AXIS_PX);
    const px = this.pixels, { step, at } = this.ticks();
    this.overview(context);
    this.font(context, 12);
    context.textBaseline = "alphabetic";
    for (const time of at) {
      const x = this.x(time);
      if (x < this.left) continue;
      context.fillStyle = this.colours.of("--soft");
      const label = `${atStep(time, step)} s`;
      const half = context.measureText(label).width / 2 / px;
      context.textAlign = "center";
      const middle = Math.min(Math.max(x, this.left + half), this.width - half);
      context.fillText(label, middle * px, (AXIS_PX - 9) * px);
      context.fillStyle = this.colours.of("--line");
      context.fillRect(Math.round(x * px), (AXIS_PX - 5) * px, px, 5 * px);
    }
    context.fillStyle = this.colours.of("--line");
    context.fillRect(this.left * px, (AXIS_PX - 1) * px, this.across * px, px);
    if (this.hidden.has("checkpoints")) return;
    context.fillStyle = this.colours.of("--k-checkpoint");
    for (const checkpoint of this.timeline.checkpoints) {
      const x = this.x(checkpoint.at);
      if (x < this.left || x > this.width) continue;
      context.beginPath();
      context.moveTo((x - 4.5) * px, (AXIS_PX - 8) * px);
      context.lineTo((x + 4.5) * px, (AXIS_PX - 8) * px);
      context.lineTo(x * px, AXIS_PX * px);
      context.fill();
    }
  }

  /** The whole run: how many of the workers compute, and which part is seen. */
  overview(context) {
    const px = this.pixels, columns = Math.round(this.across);
    if (this.busy?.length !== columns) this.busy = this.computing(columns);
    const left = this.left * px, height = (OVERVIEW_PX - 2) * px;
    context.fillStyle = this.colours.of("--band");
    context.fillRect(left, 0, this.across * px, height);
    context.fillStyle = this.colours.of("--k-compute");
    context.globalAlpha = 0.55;
    this.busy.forEach((share, x) => {
      context.fillRect(left + x * px, height * (1 - share), Math.ceil(px), height * share);
    });
    context.globalAlpha = 1;
    context.fillStyle = this.colours.of("--bad");
    for (const band of this.timeline.bands) {
      for (const one of band.attempts) {
        if (one.how !== "death" && one.how !== "lost") continue;
        context.fillRect(left + (0.01 + one.end / this.timeline.length) / 1.02 * this.across * px - px,
          0, 2 * px, height);
      }
    }
    const place = (time) => left + (time / this.timeline.length + 0.01) / 1.02 * this.across * px;
    const from = place(this.view.from), to = Math.max(from + 3 * px, place(this.view.to));
    context.fillStyle = this.colours.of("--card");
    context.globalAlpha = 0.7;
    context.fillRect(left, 0, from - left, height);
    context.fillRect(to, 0, left + this.across * px - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.of("--soft");
    context.lineWidth = px;
    context.strokeRect(from + px / 2, px / 2, to - from - px, height - px);
    if (this.left > 60) {
      this.font(context, 11);
      context.fillStyle = this.colours.of("--soft");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(this.timeline.script ? "running" : "computing", left - 9 * px, height / 2);
    }
  }

  computing(columns) {
    const whole = { from: -0.01 * this.timeline.length, to: 1.01 * this.timeline.length };
    const scale = columns / (whole.to - whole.from);
    const sum = new Float32Array(columns);
    const kinds = ["compute", "forward", "backward", "apply", "catch up", "validate", "script"];
    for (const band of this.timeline.bands) {
      for (const kind of kinds) {
        const spans = band.spans.get(kind);
        for (let i = 0; i < (spans?.start.length ?? 0); i++) {
          spread(sum, (spans.start[i] - whole.from) * scale, (spans.end[i] - whole.from) * scale, 1);
        }
        const shares = band.shares.get(kind) ?? [];
        shares.forEach((share, i) => {
          const from = (this.timeline.coarse[i] * this.timeline.bin - whole.from) * scale;
          spread(sum, from, from + this.timeline.bin * scale, share / 1000);
        });
      }
    }
    return sum.map((value) => Math.min(1, value / this.timeline.bands.length));
  }

  // ---- legend ----

  legend() {
    const legend = document.getElementById("legend");
    const ends = new Set(this.timeline.bands.flatMap((b) => b.attempts.map((one) => one.how)));
    const marks = [
      ...(ends.has("death") ? [["death", "death"]] : []),
      ...(ends.has("lost") ? [["lost", "lost with the coordinator"]] : []),
      ...(ends.has("lifetime") ? [["lifetime", "end of a lifetime"]] : []),
      ...(ends.has("hand-over") ? [["hand-over", "hand-over"]] : []),
      ...(this.timeline.checkpoints.length ? [["checkpoints", "checkpoint counts"]] : []),
      ...(this.timeline.rollbacks.length ? [["rollbacks", "all go back"]] : []),
      ...(this.timeline.changes.length ? [["changes", "the plan changes"]] : []),
    ];
    const draws = {
      death: '<path d="M2 2 11 11M11 2 2 11" stroke="var(--bad)" stroke-width="2.2"/>',
      "hand-over": '<path d="M3 1 12 6.5 3 12z" fill="var(--ink)"/>',
      checkpoints: '<path d="M1 3H12L6.5 12z" fill="var(--k-checkpoint)"/>',
      rollbacks: '<path d="M6.5 0V13" stroke="var(--bad)" stroke-width="2" stroke-dasharray="3"/>',
      changes: '<path d="M6.5 0V13" stroke="var(--ink)" stroke-width="2" stroke-dasharray="3"/>',
    };
    draws.lost = draws.death;
    draws.lifetime = draws["hand-over"];
    for (const [kind, name] of [...this.timeline.kinds.map((kind) => [kind, kind]), ...marks]) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      if (draws[kind]) {
        button.insertAdjacentHTML("beforeend",
          `<svg width="13" height="13" viewBox="0 0 13 13" aria-hidden="true">${draws[kind]}</svg>`);
      } else {
        const swatch = document.createElement("i");
        swatch.style.setProperty("--swatch", `var(${Colours.variable(kind)})`);
        swatch.className = kind === "cold start" ? "hatched" : "";
        button.append(swatch);
      }
      button.append(name);
      button.addEventListener("click", () => {
        const hide = !this.hidden.delete(kind);
        if (hide) this.hidden.add(kind);
        button.setAttribute("aria-pressed", String(!hide));
        this.redraw();
      });
      legend.append(button);
    }
  }

  // ---- address ----

  fromAddress() {
    const found = /t=([-+.\de]+),([-+.\de]+)/.exec(location.hash);
    if (found && Number(found[2]) > Number(found[1])) this.view.show(+found[1], +found[2]);
    const lanes = /lanes=(\d)/.exec(location.hash);
    if (lanes && !this.timeline.script) this.apart = lanes[1] === "1";
    document.querySelector('[data-do="lanes"]').setAttribute("aria-pressed", String(this.apart));
  }

  toAddress() {
    clearTimeout(this.writing);
    this.writing = setTimeout(() => {
      const { from, to } = this.view;
      const decimals = Math.max(0, Math.ceil(3 - Math.log10(to - from)));
      const times = this.view.fitted ? "" : `t=${from.toFixed(decimals)},${to.toFixed(decimals)}`;
      const lanes = this.toggled ? `lanes=${Number(this.apart)}` : "";
      history.replaceState(null, "", `#${[times, lanes].filter(Boolean).join("&")}`);
    }, 250);
  }

  changed() { this.redraw(); this.toAddress(); hideTip(); }

  act(what) {
    const wide = this.view.to - this.view.from;
    const actions = {
      in: () => this.view.zoom(0.6), out: () => this.view.zoom(1 / 0.6), fit: () => this.view.fit(),
      left: () => this.view.move(-0.15 * wide), right: () => this.view.move(0.15 * wide),
      lanes: () => { if (this.timeline.script) return; this.apart = !this.apart; this.toggled = true; },
    };
    actions[what]();
    document.querySelector('[data-do="lanes"]').setAttribute("aria-pressed", String(this.apart));
    this.changed();
  }

  listen() {
    const keys = { "+": "in", "=": "in", "-": "out", 0: "fit", Home: "fit", l: "lanes",
      ArrowLeft: "left", ArrowRight: "right" };
    this.bands.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      this.act(keys[event.key]);
    });
    document.getElementById("timeline-controls").addEventListener("click", (event) => {
      const what = event.target.closest("button")?.dataset.do;
      if (what) this.act(what);
    });
    addEventListener("hashchange", () => { this.fromAddress(); this.redraw(); });
    new ResizeObserver(() => this.redraw()).observe(this.frame);
    movable(this);
    hoverable(this);
  }
}

