// Wheel, drag, pinch and double click on the timeline; and what it says at the pointer.

/** A wheel that began to turn elsewhere scrolls the page on, also over the timeline. */
const WHEEL_REST_MS = 250;

function movable(figure) {
  const { bands, axis, view } = figure;
  let elsewhere = -Infinity;
  addEventListener("wheel", (event) => {
    if (event.target !== bands) elsewhere = event.timeStamp;
  }, { passive: true });
  bands.addEventListener("wheel", (event) => {
    if (event.timeStamp - elsewhere < WHEEL_REST_MS && !event.ctrlKey) {
      elsewhere = event.timeStamp;
      return;
    }
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.move(sideways * unit / figure.across * (view.to - view.from));
    } else {
      if (view.fitted && event.deltaY > 0) return; // nothing to zoom out of: the page scrolls
      view.zoom(Math.exp(event.deltaY * unit * 0.0022), figure.time(event.offsetX));
    }
    event.preventDefault();
    figure.changed();
  }, { passive: false });

  const down = new Map();
  const spread = () => {
    const xs = [...down.values()];
    return { middle: (xs[0] + xs.at(-1)) / 2, wide: Math.max(20, Math.abs(xs[0] - xs.at(-1))) };
  };
  bands.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    bands.setPointerCapture(event.pointerId);
    down.set(event.pointerId, event.offsetX);
  });
  bands.addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId)) return;
    const before = spread();
    down.set(event.pointerId, event.offsetX);
    const after = spread();
    const seconds = (view.to - view.from) / figure.across;
    if (after.middle === before.middle && after.wide === before.wide) return;
    bands.classList.add("dragging");
    view.move((before.middle - after.middle) * seconds);
    if (down.size > 1) view.zoom(before.wide / after.wide, figure.time(after.middle));
    figure.changed();
  });
  const up = (event) => { down.delete(event.pointerId); bands.classList.remove("dragging"); };
  bands.addEventListener("pointerup", up);
  bands.addEventListener("pointercancel", up);
  bands.addEventListener("dblclick", () => figure.act("fit"));

  // In the overview, the pointer takes the seen part with it.
  const jump = (event) => {
    const share = (event.offsetX - figure.left) / figure.across;
    const at = (share * 1.02 - 0.01) * figure.timeline.length, half = (view.to - view.from) / 2;
    view.show(at - half, at + half);
    figure.changed();
  };
  axis.addEventListener("pointerdown", (event) => { axis.setPointerCapture(event.pointerId); jump(event); });
  axis.addEventListener("pointermove", (event) => { if (event.buttons & 1) jump(event); });
  axis.addEventListener("dblclick", () => figure.act("fit"));
}

function hoverable(figure) {
  const { bands, guide } = figure;
  bands.addEventListener("pointermove", (event) => {
    if (event.buttons && event.pointerType === "mouse") return;
    const place = figure.placeAt(event.offsetY), band = figure.timeline.bands[place];
    guide.hidden = event.offsetX < figure.left;
    guide.style.left = `${event.offsetX}px`;
    if (!band || event.offsetX < figure.left) { hideTip(); return; }
    showTip(event, told(figure, band, figure.time(event.offsetX),
      Math.floor((event.offsetY - figure.top(place)) / (figure.lane + 1))));
  });
  bands.addEventListener("pointerleave", () => { guide.hidden = true; hideTip(); });
}

/** What there is to say of a band at a time: [text, kind] lines, the first one the heading. */
function told(figure, band, time, lane) {
  const { timeline, view } = figure;
  const reach = 3 * (view.to - view.from) / figure.across;
  const lives = new Set(timeline.bands.flatMap((b) => b.attempts.map((one) => one.life))).size > 1;
  const one = band.attempts.findLast((a) => time >= a.start - reach && time <= a.end + 2 * reach);
  const lines = [[band.name + (one ? `, attempt ${one.number}` : "")
    + (one && lives ? `, life ${one.life}` : "")]];
  const ending = band.attempts.find((a) => Math.abs(a.end - time) <= 2 * reach);
  const endings = { death: "died", lost: "lost with its coordinator", "hand-over": "handed over",
    running: "still running", done: "done", lifetime: "came to the end of its lifetime", returned: "returned", stopped: "stopped", cancelled: "cancelled" };
  if (ending) {
    const why = ending.why ? `: ${ending.why}` : "";
    lines.push([`${endings[ending.how] ?? ending.how} at ${duration(ending.end)}${why}`]);
  }
  const pause = timeline.pauses.find(({ at }) => Math.abs(at - time) <= 2 * reach);
  if (pause) lines.push([`${duration(pause.left)} in which no function lived, left out here`]);
  const checkpoint = timeline.checkpoints.find(({ at }) => Math.abs(at - time) <= reach);
  if (checkpoint) lines.push([`checkpoint of step ${checkpoint.step} counts from here`, "checkpoint"]);
  const back = timeline.rollbacks.find(({ at }) => Math.abs(at - time) <= reach);
  if (back) lines.push([`all go back to step ${back.step}, ${back.again} again: ${back.cause}`]);
  const change = timeline.changes.find(({ at }) => Math.abs(at - time) <= reach);
  if (change) lines.push([`from step ${change.step} on: ${change.words}`]);
  const lanes = LANES[figure.apart ? "apart" : "joined"][Math.max(0, lane)] ?? ["down"];
  const shown = timeline.kinds.filter((k) => !figure.hidden.has(k) && lanes.includes(timeline.rowOf(k)));
  const hits = shown.flatMap((kind) => hit(band.spans.get(kind), time, reach / 3, kind));
  const pass = passAt(band, time);
  for (const found of hits) {
    const { kind, name = kind, start, end } = pass?.kind === found.kind ? pass : found;
    lines.push([`${name}: ${duration(end - start)} from ${atStep(start, 1e-4)} s`, kind]);
  }
  const bin = timeline.bin && timeline.coarse.indexOf(Math.floor(time / timeline.bin));
  if (timeline.bin && bin >= 0) {
    lines.push([`of ${duration(timeline.bin)} here:`]);
    for (const kind of shown) {
      const share = band.shares.get(kind)?.[bin];
      if (share) lines.push([`${kind} ${(share / 10).toFixed(1)} %`, kind]);
    }
  }
  const step = stepAt(band, time);
  if (step) lines.push([`step ${step.number}, ${duration(step.end - step.start)}`
    + (step.computed ? "" : ", taken from the log")]);
  return lines;
}

/** The span of a kind at a time, or within a pixel of it. */
function hit(spans, time, reach, kind) {
  if (!spans) return [];
  const place = firstAbove(spans.end, time - reach);
  if (place >= spans.start.length || spans.start[place] > time + reach) return [];
  return [{ kind, start: spans.start[place], end: spans.end[place] }];
}

function showTip(event, lines) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...lines.map(([words, kind], place) => {
    const line = document.createElement(place ? "div" : "b");
    if (kind) {
      const swatch = document.createElement("i");
      swatch.style.setProperty("--swatch", `var(${Colours.variable(kind)})`);
      line.append(swatch);
    }
    line.append(words);
    return line;
  }));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = event.clientX + 16 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 16;
  const y = event.clientY + 18 + height > innerHeight ? event.clientY - 12 - height : event.clientY + 18;
  tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
}

function hideTip() { document.getElementById("tip").hidden = true; }

