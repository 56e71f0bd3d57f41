// A pipeline's stages in the timeline: a heading above the bands of each, and numbers in passes.

const GROUP_PX = 19;

/** Headings and the place of the first band under each. */
function decodeGroups(groups, bands) {
  return groups.map(([worker, title], place) => {
    const next = groups[place + 1]?.[0] ?? Infinity;
    return { title, first: bands.findIndex((band) => band.worker >= worker && band.worker < next) };
  }).filter(({ first }) => first >= 0);
}

/** How wide the names of a pipeline's workers are. */
function namesWidth(bands) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = "12px system-ui, sans-serif";
  return Math.ceil(Math.max(...bands.map(({ name }) => context.measureText(name).width)));
}

/** The pass that was going on at a time, in words, and its kind. */
function passAt(band, time) {
  const { start, end, number } = band.passes;
  const place = firstAbove(start, time) - 1;
  if (place < 0 || time > end[place]) return undefined;
  const kind = number[place] & 1 ? "backward" : "forward";
  return { kind, start: start[place], end: end[place], name: `${kind} of micro-batch ${number[place] >> 1}` };
}

/** Where passes are wide enough, their edges and their numbers: f3, b3. */
function numberPasses(painter, band, view, box, hidden) {
  const { context, colours, pixels } = painter, { start, end, number } = band.passes;
  const scale = (box.right - box.left) / (view.to - view.from);
  context.font = `${Math.min(11 * pixels, box.height * 0.8)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const last = firstAbove(start, view.to);
  for (let i = firstAbove(end, view.from); i < last; i++) {
    const kind = number[i] & 1 ? "backward" : "forward";
    const from = box.left + (start[i] - view.from) * scale, to = box.left + (end[i] - view.from) * scale;
    if (hidden.has(kind) || to - from < 4 * pixels) continue;
    context.fillStyle = colours.of("--band");
    if (from > box.left) context.fillRect(Math.round(from), box.top, Math.max(1, pixels / 2), box.height);
    const left = Math.max(box.left, from), right = Math.min(box.right, to);
    const name = `${kind[0]}${number[i] >> 1}`;
    if (box.height < 10 * pixels || context.measureText(name).width > right - left - 4 * pixels) continue;
    context.fillStyle = colours.of(kind === "forward" ? "--on-kind" : "--on-backward");
    context.fillText(name, (left + right) / 2, box.top + box.height / 2 + 0.5 * pixels);
  }
}

/** The heading above the first band of each stage. */
function headGroups(figure, context) {
  const px = figure.pixels;
  context.save();
  for (const { title, first } of figure.timeline.groups) {
    const top = figure.top(first) - GROUP_PX;
    context.fillStyle = figure.colours.of("--faint");
    context.fillRect(0, top * px, figure.width * px, (GROUP_PX - 4) * px);
    figure.font(context, 11.5, 650);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = figure.colours.of("--ink");
    context.fillText(title, 6 * px, (top + GROUP_PX / 2 - 1.5) * px);
  }
  context.restore();
}
