// The run, as the page carries it: numbers in units, each a distance from the one before.

/** Spans of one kind of one worker: sorted, disjoint; seconds. */
function decodeSpans(numbers, unit) {
  const count = numbers.length / 2;
  const start = new Float64Array(count), end = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    start[i] = (at += numbers[2 * i]) * unit;
    end[i] = (at += numbers[2 * i + 1]) * unit;
  }
  return { start, end };
}

function decodeSteps(numbers, unit) {
  const steps = [];
  let at = 0;
  for (let i = 0; i < numbers.length; i += 4) {
    const start = (at += numbers[i]) * unit;
    steps.push({ start, end: (at += numbers[i + 1]) * unit, number: numbers[i + 2],
      computed: numbers[i + 3] === 1 });
  }
  return steps;
}

/** Passes of micro-batches: `number` is twice the micro-batch, and one if backward. */
function decodePasses(numbers, unit) {
  const count = numbers.length / 3;
  const start = new Float64Array(count), end = new Float64Array(count), number = new Int32Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    start[i] = (at += numbers[3 * i]) * unit;
    end[i] = (at += numbers[3 * i + 1]) * unit;
    number[i] = numbers[3 * i + 2];
  }
  return { start, end, number };
}

/** Everything of the timeline in seconds; `kinds` in the order of `rows`, unknown ones last. */
function decodeTimeline(tree, rows) {
  const unit = tree.unit_s;
  const bands = tree.bands.map((band) => ({
    worker: band.worker, name: band.name ?? `worker ${band.worker}`, short: band.short ?? String(band.worker),
    passes: decodePasses(band.passes ?? [], unit),
    attempts: band.attempts.map(([life, number, start, ready, end, how, why]) => ({
      life, number, start: start * unit, ready: ready === null ? null : ready * unit,
      end: end * unit, how, why })),
    steps: decodeSteps(band.steps, unit),
    spans: new Map(Object.entries(band.spans).map(([k, v]) => [k, decodeSpans(v, unit)])),
    shares: new Map(Object.entries(band.shares)),
  }));
  const present = new Set(bands.flatMap((band) => [...band.spans.keys()]));
  const kinds = [...new Set([...Object.keys(rows), ...present])].filter((k) => present.has(k));
  return {
    bands, kinds, groups: decodeGroups(tree.groups ?? [], bands), script: tree.script, rowOf: (kind) => rows[kind] ?? "compute",
    length: Math.max(tree.length * unit, 1e-3),
    bin: tree.bin === null ? null : tree.bin * unit, coarse: tree.coarse,
    pauses: tree.pauses.map(([at, left]) => ({ at: at * unit, left })),
    checkpoints: tree.checkpoints.map(([at, step]) => ({ at: at * unit, step })),
    stops: tree.stops.map((at) => at * unit),
    rollbacks: tree.rollbacks.map(([at, step, again, cause]) => ({ at: at * unit, step, again, cause })),
    changes: tree.changes.map(([at, step, words]) => ({ at: at * unit, step, words })),
  };
}

/** The first place whose value is above `limit`; values ascend. */
function firstAbove(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

/** The step that was going on at a time, or undefined. */
function stepAt(band, time) {
  let low = 0, high = band.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (band.steps[middle].start > time) high = middle; else low = middle + 1;
  }
  const step = band.steps[low - 1];
  return step && time <= step.end ? step : undefined;
}

