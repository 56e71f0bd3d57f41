// Curves in SVG, drawn for the width that there is.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { height: 250, top: 10, right: 14, bottom: 38, left: 52 };

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

class Chart {
  constructor(figure, parent) {
    this.figure = figure;
    this.node = document.createElement("figure");
    this.node.className = "chart";
    this.caption = document.createElement("figcaption");
    this.node.append(this.caption);
    const heading = document.createElement("b");
    heading.textContent = figure.title;
    this.caption.append(heading);
    const values = this.points().map(([, y]) => y);
    this.least = Math.min(...values);
    this.most = Math.max(...values);
    if (this.least > 0 && this.most / this.least > 20) this.logButton();
    if (figure.series.length > 1) for (const series of figure.series) this.key(series);
    parent.append(this.node);
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.draw();
  }

  points() {
    return this.figure.series.flatMap((s) => s.line
      ?? s.band.flatMap(([x, low, high]) => [[x, low], [x, high]]));
  }

  key(series) {
    const key = document.createElement("span");
    const swatch = document.createElement("i");
    swatch.style.setProperty("--swatch", series.role === "second" ? "var(--k-upload)" : "var(--accent)");
    if (series.role === "light") swatch.style.opacity = "0.4";
    key.append(swatch, series.name);
    this.caption.append(key);
  }

  logButton() {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "log";
    button.title = "logarithmic scale";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      this.log = !this.log;
      button.setAttribute("aria-pressed", String(this.log));
      this.draw();
    });
    this.caption.append(button);
  }

  scales(width) {
    const xs = this.points().map(([x]) => x);
    let from = Math.min(...xs), to = Math.max(...xs);
    if (from === to) { from -= 1; to += 1; }
    const right = width - CHART.right, bottom = CHART.height - CHART.bottom;
    this.x = (value) => CHART.left + (value - from) / (to - from) * (right - CHART.left);
    this.xTicks = ticks(from, to, (right - CHART.left) / 70);
    this.xTicks.at = this.xTicks.at.filter(Number.isInteger);
    let low = this.least, high = this.most;
    if (this.figure.percent) high = Math.max(high, 1);
    if (this.log) {
      const level = (value) => Math.log10(value);
      this.y = (value) => bottom - (level(value) - level(low)) / (level(high) - level(low))
        * (bottom - CHART.top);
      const decades = [];
      for (let p = Math.floor(level(low)); p <= level(high); p++) {
        for (const times of [1, 2, 5]) decades.push(times * 10 ** p);
      }
      this.yTicks = { at: decades.filter((v) => v >= low && v <= high) };
      return;
    }
    const margin = (high - low || Math.abs(high) || 1) * 0.04;
    if (low > 0 && low < 0.5 * high) low = 0; else low -= margin;
    if (!this.figure.percent) high += margin;
    this.y = (value) => bottom - (value - low) / (high - low) * (bottom - CHART.top);
    this.yTicks = ticks(low, high, 5);
  }

  draw() {
    const width = Math.max(220, this.node.clientWidth);
    this.scales(width);
    const right = width - CHART.right, bottom = CHART.height - CHART.bottom;
    const { figure } = this;
    const last = figure.series.at(-1);
    const ends = last.line ?? last.band;
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${CHART.height}`, role: "img",
      "aria-label": `${figure.title}, ${last.name}: from ${measure(ends[0][1], figure.percent)} `
        + `to ${measure(ends.at(-1)[1], figure.percent)}` });
    for (const value of this.yTicks.at) {
      const y = Math.round(this.y(value)) + 0.5;
      drawing.append(svg("line", { class: "grid", x1: CHART.left, x2: right, y1: y, y2: y }),
        svg("text", { x: CHART.left - 8, y: y + 4, "text-anchor": "end" }, this.level(value)));
    }
    drawing.append(svg("line", { class: "base", x1: CHART.left, x2: right, y1: bottom + 0.5,
      y2: bottom + 0.5 }));
    for (const value of this.xTicks.at) {
      drawing.append(svg("text", { x: this.x(value), y: bottom + 17, "text-anchor": "middle" },
        atStep(value, 1)));
    }
    drawing.append(svg("text", { x: right, y: CHART.height - 3, "text-anchor": "end" }, figure.x));
    for (const series of figure.series) this.series(drawing, series);
    this.hover(drawing, width);
    this.drawing?.remove();
    this.drawing = drawing;
    this.node.append(drawing);
  }

  level(value) {
    if (this.figure.percent) return `${Number((100 * value).toFixed(1))} %`;
    return this.log ? String(Number(value.toPrecision(1))) : atStep(value, this.yTicks.step);
  }

  series(drawing, { role, line, band, dots }) {
    const at = ([x, y]) => `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`;
    if (band) {
      const upper = band.map(([x, , high]) => at([x, high]));
      const lower = band.map(([x, low]) => at([x, low])).reverse();
      drawing.append(svg("path", { class: role, "stroke-width": 1, "stroke-linejoin": "round",
        d: `M${[...upper, ...lower].join("L")}Z` }));
      return;
    }
    drawing.append(svg("path", { class: role, d: `M${line.map(at).join("L")}` }));
    if (!dots || line.length > 60) return;
    for (const point of line) {
      drawing.append(svg("circle", { class: role, cx: this.x(point[0]), cy: this.y(point[1]), r: 3.5 }));
    }
  }

  hover(drawing) {
    const cross = svg("line", { class: "cross", y1: CHART.top, y2: CHART.height - CHART.bottom });
    cross.style.display = "none";
    drawing.append(cross);
    drawing.addEventListener("pointermove", (event) => {
      const x = event.clientX - drawing.getBoundingClientRect().left;
      const near = (rows) => rows.reduce((best, row) =>
        Math.abs(this.x(row[0]) - x) < Math.abs(this.x(best[0]) - x) ? row : best);
      const found = this.figure.series.map((series) => [series, near(series.line ?? series.band)]);
      const at = found.at(-1)[1][0];
      cross.style.display = "";
      cross.setAttribute("x1", this.x(at));
      cross.setAttribute("x2", this.x(at));
      const words = (series, row) => (series.line || row[1] === row[2]
        ? measure(row[1], this.figure.percent) : `${measure(row[1])} to ${measure(row[2])}`);
      showTip(event, [[`${this.figure.x} ${atStep(at, 1)}`],
        ...found.map(([series, row]) => [`${series.name}: ${words(series, row)}`])]);
    });
    drawing.addEventListener("pointerleave", () => { cross.style.display = "none"; hideTip(); });
  }
}

