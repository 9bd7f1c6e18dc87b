"use strict";
// The timeline: draws the lanes of the panels on a canvas, and answers the mouse and the keys. Slices narrower than a pixel
// share one with their neighbours and fade with their coverage; bisection finds them, so that a frame costs what is in view.

const ROW = 18,
  BAND = 18,
  CURVE = 44,
  AXIS = 26,
  LABELS = 150,
  GAP = 6,
  HEADING = 20,
  LETTER = 6.4;
const NARROW = 1.5,
  FADED = 0.65,
  FAINTEST = 0.15, // px, and the opacity of the least that is in one
  SEEN = 0.6, // of a wait
  DEEP = 0.35; // of the window's height
const MOST_ARROWS = 20,
  ARROW_PX = 12;

class Timeline {
  constructor(panels, parts, onSelect) {
    Object.assign(this, parts); // canvas, scroll, height, tip
    this.onSelect = onSelect;
    this.g = this.canvas.getContext("2d");
    this.selected = null; // [panel, slice]
    this.spans = []; // stretches that are lit: [panel, from, to]
    this.classes = {}; // of the critical path, that are lit, by panel
    this.measured = null; // [from, to]
    this.white = null; // { panel, lane, from, to }
    this.showPath = false;
    this.recorded = false; // whether the path is the recorded run's
    this.held = new Set();
    this.theme();
    this.listen();
    this.replace(panels);
    new ResizeObserver(() => this.resize()).observe(this.scroll);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
  replace(panels) {
    this.panels = panels;
    this.selected = null;
    this.paired = [];
    this.folded = new Set(panels.filter((panel) => panel.folded));
    // The GPU's lanes are below the CPU's, and above where those alone would fill most of the view: with stacks they are deep.
    const rows = (panel) => panel.lanes.reduce((sum, lane) => sum + (lane.gpu ? 0 : lane.rows.length), 0);
    this.gpuFirst = panels.some((panel) => rows(panel) * ROW > DEEP * innerHeight);
    this.everything();
    this.resize();
  }

  // ---- where things are

  everything() {
    const known = this.panels.filter((panel) => panel.last > panel.first);
    this.t0 = Math.min(...known.map((panel) => panel.first));
    this.t1 = Math.max(...known.map((panel) => panel.last));
    if (!(this.t1 > this.t0)) [this.t0, this.t1] = [0, 1000];
    const margin = (this.t1 - this.t0) * 0.01;
    this.bounds = [this.t0 - margin, this.t1 + margin];
    [this.t0, this.t1] = this.bounds;
    this.draw();
  }
  resize() {
    this.width = this.scroll.clientWidth;
    this.layout();
    const most = Math.max(200, Math.round(innerHeight * 0.55));
    this.view = Math.min(most, this.total + AXIS + 4);
    const ratio = devicePixelRatio || 1;
    this.scroll.style.height = `${this.view + 2}px`; // with its border
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.view}px`;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.view * ratio);
    this.height.style.height = `${Math.max(0, this.total + AXIS + 4 - this.view)}px`;
    this.draw();
    if (this.folded.size !== this.foldedBefore) this.onFold?.();
    this.foldedBefore = this.folded.size;
  }
  get left() {
    return Math.min(LABELS, this.width * 0.28);
  }
  // From the top: a heading for each panel where there are several, then its lanes.
  layout() {
    this.items = [];
    let y = 0;
    const add = (kind, panel, own, height) => {
      this.items.push({ kind, panel, own, y, height });
      y += height + GAP;
    };
    for (const panel of this.panels) {
      if (this.panels.length > 1 && !panel.folded) add("heading", panel, null, HEADING);
      for (const [i, band] of panel.bands.entries()) if (panel.folded && i === 0) add("band", panel, band, BAND * 2);
      if (this.folded.has(panel)) continue;
      const lanes = panel.lanes.filter((lane) => lane.rows.length),
        ofCpu = lanes.filter((lane) => !lane.gpu),
        ofGpu = lanes.filter((lane) => lane.gpu);
      for (const lane of this.gpuFirst ? [...ofGpu, ...ofCpu] : [...ofCpu, ...ofGpu])
        add("lane", panel, lane, lane.rows.length * ROW);
      for (const [i, band] of panel.bands.entries()) if (!(panel.folded && i === 0)) add("band", panel, band, BAND);
      for (const [i, curve] of panel.curves.entries()) add("curve", panel, { ...curve, number: i }, CURVE);
    }
    this.total = y;
    this.laneItem = new Map(this.items.filter((item) => item.kind === "lane").map((item) => [item.own, item]));
  }
  x(moment) {
    return this.left + ((moment - this.t0) / (this.t1 - this.t0)) * (this.width - this.left);
  }
  moment(x) {
    return this.t0 + ((x - this.left) / (this.width - this.left)) * (this.t1 - this.t0);
  }
  top(item) {
    return AXIS + item.y - this.scroll.scrollTop;
  }
  topOf(panel, i) {
    const item = this.laneItem.get(panel.laneOf(i));
    return item && this.top(item) + panel.depth[i] * ROW;
  }

  // ---- drawing

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => {
      this.asked = false;
      if (this.held.size) this.move(now);
      this.frame();
    });
  }
  theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.ink = dark ? "#e6e8eb" : "#1d2126";
    this.faint = dark ? "#3a4048" : "#d8dce1";
    this.paper = dark ? "#14171b" : "#ffffff";
    this.idle = dark ? "#4b3b31" : "#f4e3d6";
  }
  frame() {
    const g = this.g,
      ratio = devicePixelRatio || 1;
    this.theme();
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = this.paper;
    g.fillRect(0, 0, this.width, this.view);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const isOfLanes = ([k]) => !this.panels[k].folded; // of a rank of a job the summary lights up, and nothing fades
    this.dimmed = this.spans.some(isOfLanes) || Object.keys(this.classes).length > 0 || this.panels.some((panel) => panel.mask);
    this.drawGrid();
    for (const item of this.items) {
      const top = this.top(item);
      if (top > this.view || top + item.height < AXIS) continue;
      if (item.kind === "lane") item.own.rows.forEach((row, level) => this.drawSlices(item.panel, row, top + level * ROW));
      if (item.kind === "band") this.drawBand(item.panel, item.own, top, item.height);
      if (item.kind === "curve") this.drawCurve(item.panel, item.own, top);
    }
    this.drawSpans();
    this.drawClasses();
    if (this.showPath) for (const panel of this.panels) this.drawPath(panel);
    this.drawSelected();
    this.drawMeasured();
    this.drawLabels();
    this.drawAxis();
    if (this.seen?.[0] !== this.t0 || this.seen[1] !== this.t1) {
      this.seen = [this.t0, this.t1];
      this.onDraw?.();
    }
  }
  drawSlices(panel, row, y) {
    const g = this.g,
      { start, end, ids } = row,
      scale = (this.width - this.left) / (this.t1 - this.t0);
    const last = place(start, this.t1);
    let i = place(end, this.t0);
    while (i < last) {
      const x = this.x(start[i]),
        wide = (end[i] - start[i]) * scale;
      const next = wide < NARROW ? this.narrow(row, i, last, scale) : i + 1,
        lit = row.firstLit(i, next);
      const [name, colour, ink] = this.colour(panel.categories[panel.category[ids[lit < 0 ? i : lit]]]);
      g.globalAlpha = lit >= 0 ? 1 : this.dimmed ? 0.16 : 1;
      if (wide < NARROW) {
        // Several in one pixel: as strong as they fill it.
        const least = name === "waiting" ? SEEN : FAINTEST;
        g.globalAlpha *= lit >= 0 ? 1 : Math.min(1, Math.max(least, (row.covered[next] - row.covered[i]) * scale));
        g.fillStyle = colour;
        g.fillRect(Math.max(Math.floor(x), this.left), y, 1, ROW - 2);
        i = next;
        continue;
      }
      const from = Math.max(x, this.left),
        to = Math.min(x + wide, this.width);
      g.fillStyle = colour;
      g.fillRect(from, y, Math.max(to - from - (wide > 3 ? 1 : 0), 1), ROW - 2);
      if (name === "waiting" && wide > 3) this.hatch(from, y, to - from - 1, ROW - 2);
      if (g.globalAlpha < FADED) g.globalAlpha = FADED; // a name stays readable where its slice has faded
      if (to - from > 22)
        this.write(panel.called(ids[i]), from + 3, y + ROW / 2 - 1, to - from - 6, g.globalAlpha < 1 ? this.ink : ink);
      i++;
    }
    g.globalAlpha = 1;
  }
  // The end of those from `i` on that begin in the same pixel and are narrow; a wide one, which can only be the last, is none.
  narrow(row, i, last, scale) {
    const pixel = Math.floor(this.x(row.start[i])),
      next = place(row.start, this.t0 + (pixel + 1 - this.left) / scale, i + 1, last);
    return next - 1 > i && (row.end[next - 1] - row.start[next - 1]) * scale >= NARROW ? next - 1 : next;
  }
  // A category with the colour of the text on it, the one of more contrast.
  colour(category) {
    if (!category[2]) {
      const part = (at) => {
        const value = parseInt(category[1].slice(at, at + 2), 16) / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
      };
      category[2] = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.179 ? "#000000" : "#ffffff";
    }
    return category;
  }
  write(text, x, y, room, ink) {
    const letters = Math.floor(room / LETTER);
    if (letters < 3) return;
    this.g.fillStyle = ink;
    this.g.fillText(text.length > letters + 1 ? `${text.slice(0, letters - 1)}…` : text, x, y, room);
  }
  hatch(x, y, wide, high) {
    const g = this.g;
    g.save();
    g.beginPath();
    g.rect(x, y, wide, high);
    g.clip();
    g.strokeStyle = "#00000055";
    g.lineWidth = 1;
    g.beginPath();
    const from = Math.floor(x / 6) * 6 - high;
    for (let at = from; at < x + wide; at += 6) {
      g.moveTo(at, y + high);
      g.lineTo(at + high, y);
    }
    g.stroke();
    g.restore();
  }
  drawBand(panel, band, top, height) {
    const g = this.g,
      scale = (this.width - this.left) / (this.t1 - this.t0);
    band.halves.forEach((row, half) => {
      const y = half === 2 ? top + height / 2 : top,
        high = (half ? height / 2 : height) - 2;
      const last = place(row.start, this.t1);
      let i = place(row.end, this.t0);
      while (i < last) {
        const x = this.x(row.start[i]),
          wide = (row.end[i] - row.start[i]) * scale,
          [text, name] = band.texts[row.ids[i]];
        const category = name === "idle" ? ["idle", this.idle, this.ink] : this.colour(panel.categories[panel.categoryOf[name]]);
        g.globalAlpha = this.dimmed ? 0.35 : 1;
        g.fillStyle = category[1];
        if (wide < NARROW) {
          const next = this.narrow(row, i, last, scale);
          g.globalAlpha *= Math.min(1, Math.max(FAINTEST, (row.covered[next] - row.covered[i]) * scale));
          g.fillRect(Math.max(Math.floor(x), this.left), y, 1, high);
          i = next;
          continue;
        }
        const from = Math.max(x, this.left),
          to = Math.min(x + wide, this.width);
        g.fillRect(from, y, to - from, high);
        if (name === "waiting") this.hatch(from, y, to - from, high);
        if (to - from > 30) this.write(text, from + 3, y + high / 2, to - from - 6, category[2]);
        i++;
      }
    });
    g.globalAlpha = 1;
  }
  drawCurve(panel, curve, top) {
    const g = this.g,
      at = panel.columns[`curve${curve.number}_at`],
      allocated = panel.columns[`curve${curve.number}_bytes`];
    const peak = Math.max(...this.panels.flatMap((own) => own.curves.map((each) => each.peak)), 1),
      high = CURVE - 4,
      y = (value) => top + high * (1 - value / peak);
    const from = this.t0 - panel.shift,
      to = this.t1 - panel.shift;
    let i = place(at, from);
    g.beginPath();
    g.moveTo(this.left, top + high);
    let value = i ? allocated[i - 1] : curve.first;
    g.lineTo(this.left, y(value));
    while (i < at.length && at[i] < to) {
      const x = this.x(at[i] + panel.shift);
      const next = Math.max(place(at, this.moment(Math.floor(x) + 1) - panel.shift, i + 1), i + 1);
      g.lineTo(x, y(value));
      let most = allocated[i];
      for (let k = i; k < next; k++) most = Math.max(most, allocated[k]);
      g.lineTo(x, y(most));
      value = allocated[next - 1];
      i = next;
    }
    g.lineTo(this.width, y(value));
    g.lineTo(this.width, top + high);
    g.fillStyle = "#6fae9c";
    g.fill();
    this.write(`peak ${bytes(curve.peak)}`, this.left + 4, top + 7, 160, this.ink);
  }
  drawGrid() {
    const g = this.g;
    g.strokeStyle = this.faint;
    g.lineWidth = 1;
    g.beginPath();
    for (const at of this.ticks()) {
      const x = Math.round(this.x(at)) + 0.5;
      g.moveTo(x, AXIS - 4);
      g.lineTo(x, this.view);
    }
    g.stroke();
    g.strokeStyle = this.ink;
    g.setLineDash([4, 3]);
    g.globalAlpha = 0.5;
    g.beginPath();
    for (const panel of this.panels) {
      const items = this.items.filter((item) => item.panel === panel);
      if (!items.length) continue;
      const top = this.top(items[0]),
        bottom = this.top(items.at(-1)) + items.at(-1).height;
      for (const [, start] of panel.steps) {
        const x = Math.round(this.x(start + panel.shift)) + 0.5;
        if (x < this.left || x > this.width) continue;
        g.moveTo(x, top);
        g.lineTo(x, bottom);
      }
    }
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
  }
  ticks() {
    const least = ((this.t1 - this.t0) * 90) / Math.max(this.width - this.left, 90),
      power = 10 ** Math.floor(Math.log10(least));
    const each = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least);
    const found = [];
    for (let at = Math.ceil(this.t0 / each) * each; at <= this.t1 && found.length < 100; at += each) found.push(at);
    return found;
  }
  drawAxis() {
    const g = this.g;
    g.fillStyle = this.paper;
    g.fillRect(0, 0, this.width, AXIS - 4);
    g.fillStyle = this.ink;
    const span = this.t1 - this.t0,
      [unit, size] = span > 2e9 ? ["s", 1e9] : span > 2e6 ? ["ms", 1e6] : ["µs", 1e3];
    const digits = Math.max(0, Math.min(3, Math.ceil(-Math.log10(span / size / 20))));
    for (const at of this.ticks()) {
      const text = (at / size).toFixed(digits),
        x = this.x(at);
      if (x >= this.left && x < this.width - text.length * LETTER) g.fillText(text, x + 3, AXIS / 2 - 1);
    }
    g.fillText(unit, 6, AXIS / 2 - 1);
  }
  drawLabels() {
    const g = this.g;
    g.fillStyle = this.paper;
    g.fillRect(0, AXIS, this.left - 2, this.view);
    g.save();
    g.beginPath();
    g.rect(0, AXIS, this.width, this.view);
    g.clip();
    for (const item of this.items) {
      const top = this.top(item);
      if (top > this.view || top + item.height < AXIS) continue;
      if (item.kind === "heading") {
        g.font = "bold 12px system-ui, sans-serif";
        this.write(item.panel.label, 6, top + HEADING / 2, this.width - 12, this.ink);
        g.font = "11px system-ui, sans-serif";
        continue;
      }
      const opens = item.panel.folded && item.own === item.panel.bands[0] && item.panel.n > 0;
      const mark = opens ? (this.folded.has(item.panel) ? "▸ " : "▾ ") : "";
      const height = Math.min(item.height, ROW);
      this.write(mark + item.own.label, 6, Math.max(top, AXIS) + height / 2, this.left - 10, this.ink);
    }
    g.restore();
  }
  drawSpans() {
    const g = this.g;
    for (const [number, from, to] of this.spans) {
      const panel = this.panels[number],
        items = this.items.filter((item) => item.panel === panel);
      if (!items.length) continue;
      const x = Math.max(this.x(from + panel.shift), this.left),
        right = Math.min(this.x(to + panel.shift), this.width);
      if (right < this.left || x > this.width) continue;
      // Of a rank of a job, its summary alone: its lanes have slices of their own to see.
      const last = panel.folded ? items[0] : items.at(-1),
        top = this.top(items[0]),
        bottom = this.top(last) + last.height;
      g.fillStyle = "#e8a13a55";
      g.fillRect(x, top, Math.max(right - x, 1), bottom - top);
    }
  }
  // The pieces of the critical path: of the run without the profiler, or, where that is another one and asked for, as recorded.
  pieces(panel) {
    const name = this.recorded && panel.columns.recorded_start ? "recorded" : "path";
    const own = (column) => panel.columns[`${name}_${column}`];
    return { start: own("start"), end: own("end"), track: own("track"), kind: own("kind"), row: own("row") };
  }
  // The stretches of the critical path of one class, each in its lane.
  drawClasses() {
    const g = this.g;
    this.panels.forEach((panel, number) => {
      const wanted = this.classes[number];
      if (wanted === undefined || this.folded.has(panel)) return;
      const { start, end, track, kind } = this.pieces(panel);
      const lanes = [];
      for (const lane of panel.lanes) lanes[lane.track] = this.laneItem.get(lane);
      g.fillStyle = "#e8a13a66";
      for (let i = 0; i < start.length; i++) {
        const item = lanes[track[i]];
        if (kind[i] !== wanted || !item) continue;
        const x = Math.max(this.x(start[i] + panel.shift), this.left),
          right = Math.min(this.x(end[i] + panel.shift), this.width);
        if (right >= this.left && x <= this.width) g.fillRect(x, this.top(item), Math.max(right - x, 0.5), item.height);
      }
    });
  }
  // The critical path: a line through the lanes, thick where time passes on it: below the GPU's slices, above the CPU's threads.
  drawPath(panel) {
    if (!panel.path || this.folded.has(panel)) return;
    const g = this.g,
      { start, end, track, kind, row } = this.pieces(panel);
    const lanes = [];
    for (const lane of panel.lanes) lanes[lane.track] = this.laneItem.get(lane);
    let before = null,
      pixel = -1;
    g.lineCap = "butt";
    const last = place(start, this.t1 - panel.shift);
    for (let i = place(end, this.t0 - panel.shift); i < last; i++) {
      const from = start[i] + panel.shift,
        to = end[i] + panel.shift,
        item = lanes[track[i]];
      if (!item) {
        before = null;
        continue;
      }
      const x = Math.max(this.x(from), this.left),
        right = Math.min(this.x(to), this.width),
        y = this.top(item) + (row[i] >= 0 ? (panel.depth[row[i]] + 1) * ROW - 1 : -3);
      if (right - x < 0.5 && Math.floor(x) === pixel && before === y) continue;
      pixel = Math.floor(x);
      g.strokeStyle = this.ink;
      g.globalAlpha = 0.9;
      if (before !== null && before !== y) {
        g.lineWidth = 1;
        g.beginPath();
        g.moveTo(x, before);
        g.lineTo(x, y);
        g.stroke();
      }
      g.lineWidth = panel.path[kind[i]] === "latency" ? 1.5 : 4;
      g.setLineDash(panel.path[kind[i]] === "latency" ? [2, 2] : []);
      g.beginPath();
      g.moveTo(x, y);
      g.lineTo(Math.max(right, x + 0.5), y);
      g.stroke();
      g.setLineDash([]);
      before = y;
    }
    g.globalAlpha = 1;
  }
  box(panel, i) {
    const y = this.topOf(panel, i);
    if (y === undefined) return null;
    return [Math.max(this.x(panel.start[i]), this.left), y, Math.max(this.x(panel.end[i]), this.left)];
  }
  drawSelected() {
    if (!this.selected) return;
    const g = this.g,
      [panel, i] = this.selected;
    const outline = (own, k) => {
      const box = this.box(own, k);
      if (!box || !this.isSeen(own, k)) return;
      g.lineWidth = 2;
      g.strokeStyle = this.ink;
      g.strokeRect(box[0] - 1, box[1] - 1, Math.max(box[2] - box[0], 2) + 2, ROW);
    };
    outline(panel, i);
    const launches =
      panel.call[i] >= 0 ? [[panel.call[i], i]] : (panel.launched.get(i) || []).slice(0, MOST_ARROWS).map((k) => [i, k]);
    // Heads side by side would be a block: of those that end in the same few pixels, the first.
    let before = -Infinity;
    for (const [call, work] of launches) {
      const x = this.x(panel.start[work]);
      if (Math.abs(x - before) < ARROW_PX && launches.length > 1) continue;
      before = x;
      this.arrow(panel, call, work);
    }
    for (const [other, k] of this.paired) {
      outline(other, k);
      const a = this.box(panel, i),
        b = this.box(other, k);
      if (!a || !b || !this.isSeen(panel, i) || !this.isSeen(other, k)) continue;
      g.setLineDash([5, 4]);
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo((a[0] + a[2]) / 2, a[1]);
      g.lineTo((b[0] + b[2]) / 2, b[1]);
      g.stroke();
      g.setLineDash([]);
    }
  }
  isSeen(panel, i) {
    return panel.end[i] >= this.t0 && panel.start[i] <= this.t1;
  }
  // The same call of the same kernel in the other traces.
  pairs(panel, i) {
    if (this.panels.length < 2 || panel.folded || !panel.isGpu(i)) return [];
    return this.panels
      .filter((other) => other !== panel)
      .map((other) => [other, other.counterpart(panel, i)])
      .filter(([, k]) => k >= 0);
  }
  // From a call to what it launched; where one of them is out of sight, how far away it is.
  arrow(panel, call, work) {
    const from = this.box(panel, call),
      to = this.box(panel, work),
      apart = duration((panel.start[work] - panel.start[call]) / panel.drawn);
    if (!from || !to) return;
    if (!this.isSeen(panel, call) || !this.isSeen(panel, work)) {
      if (this.isSeen(panel, work)) this.edge(`← launched ${apart} earlier (L)`, to);
      if (this.isSeen(panel, call)) this.edge(`→ runs ${apart} later (L)`, from);
      return;
    }
    const g = this.g,
      down = to[1] > from[1],
      y0 = from[1] + (down ? ROW - 2 : 0),
      y1 = to[1] + (down ? 0 : ROW - 2),
      x1 = to[0];
    g.strokeStyle = g.fillStyle = this.ink;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(from[2], y0);
    g.bezierCurveTo(from[2], (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
    g.stroke();
    g.beginPath();
    g.moveTo(x1, y1);
    g.lineTo(x1 - 4, y1 + (down ? -7 : 7));
    g.lineTo(x1 + 4, y1 + (down ? -7 : 7));
    g.fill();
  }
  edge(text, box) {
    const g = this.g,
      wide = text.length * LETTER,
      x = Math.min(Math.max(box[0], this.left), this.width - wide - 4);
    g.fillStyle = this.paper;
    g.fillRect(x, box[1] - 15, wide, 14);
    g.fillStyle = this.ink;
    g.fillText(text, x + 2, box[1] - 8);
  }
  drawMeasured() {
    if (!this.measured) return;
    const g = this.g,
      [from, to] = this.measured.map((moment) => this.x(moment));
    g.fillStyle = "#0072b233";
    g.fillRect(Math.max(from, this.left), AXIS - 4, Math.min(to, this.width) - Math.max(from, this.left), this.view);
    g.fillStyle = this.ink;
    this.edge(duration(this.measured[1] - this.measured[0]), [Math.max(from, this.left), this.view - 2]);
  }

  // ---- moving

  show(from, to) {
    const least = 10,
      long = Math.min(Math.max(to - from, least), this.bounds[1] - this.bounds[0]);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - long / 2, this.bounds[0]), this.bounds[1] - long);
    this.t0 = start;
    this.t1 = start + long;
    this.draw();
  }
  // Around the mouse; without one, around what is selected and in sight; else around the middle.
  zoom(factor, x = null) {
    const [panel, i] = this.selected || [],
      chosen = panel && this.isSeen(panel, i) ? this.x((panel.start[i] + panel.end[i]) / 2) : null;
    const at = this.moment(x === null ? Math.min(chosen ?? (this.left + this.width) / 2, this.width) : Math.max(x, this.left));
    this.show(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }
  pan(share) {
    const by = (this.t1 - this.t0) * share;
    const kept = Math.min(Math.max(by, this.bounds[0] - this.t0), this.bounds[1] - this.t1);
    this.t0 += kept;
    this.t1 += kept;
    this.draw();
  }
  // While a key is held: by the time that passed.
  move(now) {
    const passed = Math.max(0, Math.min(now - this.moved, 50)) / 1000; // a frame may be older than the key
    this.moved = now;
    if (this.held.has("w")) this.zoom(Math.exp(-3 * passed), this.mouse);
    if (this.held.has("s")) this.zoom(Math.exp(3 * passed), this.mouse);
    if (this.held.has("a")) this.pan(-0.8 * passed);
    if (this.held.has("d")) this.pan(0.8 * passed);
    this.draw();
  }
  fit(panel, ids) {
    let from = Infinity,
      to = -Infinity;
    for (const i of ids) {
      from = Math.min(from, panel.start[i]);
      to = Math.max(to, panel.end[i]);
    }
    if (to >= from) this.show(from - (to - from) * 0.15 - 100, to + (to - from) * 0.15 + 100);
  }
  fitLaunch(panel, i) {
    this.fit(panel, panel.call[i] >= 0 ? [panel.call[i], i] : [i, ...(panel.launched.get(i) || []).slice(0, MOST_ARROWS)]);
  }
  measure(panel, i) {
    this.measured = [panel.start[i], panel.end[i]];
    this.white = null;
    this.onSelect(null, null, this.measured);
    this.draw();
  }
  // The white space behind a slice, on its lane, brought into view; the slice stays selected.
  whiteBehind(panel, i) {
    const white = panel.whiteBehind(i);
    if (!white) return;
    const [from, to] = white,
      half = Math.max(this.t1 - this.t0, to - from) / 2;
    if (from < this.t0 || to > this.t1) this.show((from + to) / 2 - half, (from + to) / 2 + half);
    this.selectWhite(panel, panel.laneOf(i), white);
  }
  reveal(panel, i) {
    if (this.folded.delete(panel)) this.resize();
    const item = this.laneItem.get(panel.laneOf(i));
    if (!item) return;
    const y = item.y + panel.depth[i] * ROW,
      shown = this.view - AXIS - ROW;
    if (y < this.scroll.scrollTop || y > this.scroll.scrollTop + shown) this.scroll.scrollTop = y - shown / 2;
    if (panel.end[i] < this.t0 || panel.start[i] > this.t1) {
      const half = (this.t1 - this.t0) / 2,
        middle = (panel.start[i] + panel.end[i]) / 2;
      this.show(middle - half, middle + half);
    }
  }
  select(panel, i) {
    this.white = null;
    this.selected = panel ? [panel, i] : null;
    this.paired = panel ? this.pairs(panel, i) : [];
    if (panel) this.reveal(panel, i);
    this.onSelect(panel, i);
    this.draw();
  }
  // `lights`: names, rows and spans by panel, as the page has them; null: nothing.
  light(lights) {
    this.spans = [];
    this.classes = lights?.path || {};
    const found = this.panels.map((panel, number) => {
      const names = new Set(lights?.names?.[number] || []),
        rows = lights?.rows?.[number] || [];
      for (const [from, to] of lights?.spans?.[number] || []) this.spans.push([number, from, to]);
      if (!names.size && !rows.length) {
        panel.light(lights && this.lightsAnything(lights) ? new Uint8Array(panel.n) : null);
        return [];
      }
      const mask = new Uint8Array(panel.n),
        ids = [];
      let row = 0;
      for (const further of rows) mask[(row += further)] = 1; // each is its distance from the one before
      if (names.size) for (let i = 0; i < panel.n; i++) if (names.has(panel.name[i])) mask[i] = 1;
      for (let i = 0; i < panel.n; i++) if (mask[i]) ids.push(i);
      panel.light(mask);
      return ids;
    });
    this.draw();
    return found;
  }
  lightsAnything(lights) {
    return Boolean(lights.names || lights.rows);
  }

  // ---- what the mouse and the keys do

  at(x, y) {
    for (const item of this.items) {
      const top = this.top(item);
      if (y < top || y >= top + item.height || y < AXIS) continue;
      if (x < this.left) return { item, text: item.own?.label };
      const moment = this.moment(x),
        near = ((this.t1 - this.t0) / (this.width - this.left)) * 2;
      if (item.kind === "lane") {
        const row = item.own.rows[Math.floor((y - top) / ROW)];
        if (!row) return { item };
        let i = place(row.end, moment);
        if (!(row.start[i] <= moment)) {
          // In none of them: the nearest, if it is near.
          const away = (k) => (k < 0 || k >= row.ids.length ? Infinity : Math.max(row.start[k] - moment, moment - row.end[k]));
          i = away(i - 1) < away(i) ? i - 1 : i;
          if (away(i) > near) {
            const white = item.panel.whiteAt(item.own, moment);
            return { item, panel: item.panel, white, text: white && `no op, call or kernel: ${duration(white[1] - white[0])}` };
          }
        }
        return { item, panel: item.panel, slice: row.ids[i] };
      }
      if (item.kind === "band") {
        for (const half of item.own.halves) {
          const i = place(half.end, moment);
          const upper = y < top + item.height / 2,
            fits = half === item.own.halves[0] || (half === item.own.halves[1]) === upper;
          if (fits && i < half.ids.length && half.start[i] <= moment) {
            return {
              item,
              panel: item.panel,
              text: `${item.own.texts[half.ids[i]][0]}: ${duration(half.end[i] - half.start[i])}`,
            };
          }
        }
      }
      if (item.kind === "curve") {
        const allocated = item.panel.columns[`curve${item.own.number}_bytes`];
        const i = place(item.panel.columns[`curve${item.own.number}_at`], moment - item.panel.shift);
        return { item, text: `${bytes(i ? allocated[i - 1] : item.own.first)} allocated` };
      }
      return { item };
    }
    return {};
  }
  hover(x, y, clientX, clientY) {
    const { panel, slice, text } = this.at(x, y);
    const said =
      slice !== undefined
        ? describe(panel, slice)
            .slice(0, 5)
            .map(([what, value]) => (what ? `${what}: ${value}` : value))
        : text
          ? [text]
          : [];
    this.tip.hidden = !said.length;
    if (!said.length) return;
    this.tip.replaceChildren(...said.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    const wide = this.tip.offsetWidth,
      high = this.tip.offsetHeight;
    this.tip.style.left = `${Math.min(clientX + 14, innerWidth - wide - 8)}px`;
    this.tip.style.top = `${clientY + 18 + high > innerHeight ? clientY - high - 10 : clientY + 18}px`;
  }
  click(x, y) {
    const { item, panel, slice, white } = this.at(x, y);
    if (item?.panel.folded && item.own === item.panel.bands[0] && (x < this.left || item.kind === "band")) {
      if (!this.folded.delete(item.panel)) this.folded.add(item.panel);
      this.resize();
      return;
    }
    this.select(slice === undefined ? null : panel, slice);
    if (white) this.selectWhite(panel, item.own, white);
  }
  // The time in which no work is on a lane is measured, and can be marked.
  selectWhite(panel, lane, [from, to]) {
    this.white = { panel, lane, from, to };
    this.measured = [from, to];
    this.onSelect(null, null, this.measured);
    this.draw();
  }
  listen() {
    const canvas = this.canvas,
      at = (event) => [event.clientX - canvas.getBoundingClientRect().left, event.clientY - canvas.getBoundingClientRect().top];
    let drag = null;
    const fingers = new Map(); // where each is; two of them zoom
    const pinched = (event) => {
      if (event.pointerType !== "touch") return false;
      const before = [...fingers.values()];
      fingers.set(event.pointerId, at(event)[0]);
      if (fingers.size < 2) return false;
      const [a, b] = [...fingers.values()];
      if (before.length > 1)
        this.zoom(Math.max(Math.abs(before[0] - before[1]), 10) / Math.max(Math.abs(a - b), 10), (a + b) / 2);
      return true;
    };
    for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pinched(event);
      const [x, y] = at(event);
      drag = {
        x,
        y,
        from: this.moment(Math.max(x, this.left)),
        pans: event.shiftKey || event.pointerType === "touch",
        moved: false,
      };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (fingers.has(event.pointerId) && pinched(event)) {
        if (drag) drag.moved = true;
        return;
      }
      this.mouse = event.pointerType === "touch" ? null : x;
      if (!drag) {
        this.hover(x, y, event.clientX, event.clientY);
        return;
      }
      if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
      drag.moved = true;
      this.tip.hidden = true;
      if (drag.pans) {
        this.pan((drag.x - x) / (this.width - this.left));
        drag.x = x;
        return;
      }
      const to = this.moment(Math.max(x, this.left));
      this.white = null;
      this.measured = [Math.min(drag.from, to), Math.max(drag.from, to)];
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const [x, y] = at(event);
      if (drag && !drag.moved) {
        this.measured = null;
        this.click(x, y);
      } else if (drag && !drag.pans && this.measured) this.onSelect(null, null, this.measured);
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
      this.mouse = null;
    });
    canvas.addEventListener("dblclick", (event) => {
      const { panel, slice } = this.at(...at(event));
      if (slice !== undefined) this.fit(panel, [slice]);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.zoom(Math.exp(event.deltaY * 0.002), at(event)[0]);
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.pan((event.deltaX || event.deltaY) / (this.width - this.left));
        }
      },
      { passive: false },
    );
    const hide = () => (this.tip.hidden = true);
    this.scroll.addEventListener("scroll", () => this.draw());
    addEventListener("scroll", hide, true);
    addEventListener("keydown", hide);
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keyup", (event) => this.held.delete(event.key.toLowerCase()));
    addEventListener("blur", () => this.held.clear());
  }
  key(event) {
    if (isTyped(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key,
      onCanvas = document.activeElement === this.canvas;
    if ("wasd".includes(key) && key.length === 1) {
      if (!this.held.has(key)) {
        this.moved = performance.now();
        if (key === "w" || key === "s") this.zoom(key === "w" ? 0.8 : 1.25, this.mouse);
        else this.pan(key === "a" ? -0.1 : 0.1);
        this.held.add(key);
      }
      this.draw();
    } else if (key === "f" && this.selected) this.fit(this.selected[0], [this.selected[1]]);
    else if (key === "l" && this.selected) this.fitLaunch(...this.selected);
    else if (key === "m" && this.selected) this.measure(...this.selected);
    else if (key === "g" && this.selected) this.whiteBehind(...this.selected);
    else if (key === "0") this.everything();
    else if (/^Page(Up|Down)$/.test(key) && onCanvas) this.scroll.scrollTop += (key === "PageUp" ? -0.8 : 0.8) * this.view;
    else if (key.startsWith("Arrow") && onCanvas) this.step(key);
    else if (key === "Enter" && onCanvas && this.folds()) this.toggle();
    else return;
    event.preventDefault();
  }
  folds() {
    return this.panels.some((panel) => panel.folded);
  }
  toggle() {
    const folded = this.panels.filter((panel) => panel.folded && panel.n);
    const next = folded.find((panel) => this.folded.has(panel));
    if (next) this.folded.delete(next);
    else for (const panel of folded) this.folded.add(panel);
    this.resize();
  }
  // In the lane above or below, the slice at about the same time.
  beside(panel, i, by) {
    const lanes = this.items.filter((item) => item.kind === "lane" && item.panel === panel).map((item) => item.own);
    const lane = lanes[lanes.indexOf(panel.laneOf(i)) + by],
      row = lane?.rows[by > 0 ? 0 : lane.rows.length - 1];
    return row ? row.ids[Math.min(place(row.end, panel.start[i]), row.ids.length - 1)] : -1;
  }
  // From slice to slice: left and right in a row; up to the outer one, or to the launch; down to the first inner one, or to
  // what a call launched; else to the lane above or below.
  step(key) {
    if (!this.selected) {
      const open = this.panels.find((panel) => panel.n && !this.folded.has(panel));
      if (!open) return;
      const lane = open.lanes.find((own) => own.rows.length),
        row = lane.rows[0];
      this.select(open, row.ids[Math.min(place(row.end, this.t0), row.ids.length - 1)]);
      return;
    }
    const [panel, i] = this.selected,
      row = panel.laneOf(i).rows[panel.depth[i]],
      at = panel.placeInRow[i];
    let to = -1;
    if (key === "ArrowLeft" && at > 0) to = row.ids[at - 1];
    if (key === "ArrowRight" && at + 1 < row.ids.length) to = row.ids[at + 1];
    if (key === "ArrowUp")
      to = panel.call[i] >= 0 ? panel.call[i] : panel.parent[i] >= 0 ? panel.parent[i] : this.beside(panel, i, -1);
    if (key === "ArrowDown") {
      const below = panel.laneOf(i).rows[panel.depth[i] + 1],
        k = below ? place(below.start, panel.start[i]) : 0;
      if (below && k < below.ids.length && below.start[k] < panel.end[i]) to = below.ids[k];
      else to = panel.launched.get(i)?.[0] ?? this.beside(panel, i, 1);
    }
    if (to >= 0) this.select(panel, to);
  }
}

// What is known of a slice, in pairs of what and value.
function ago(ns) {
  return `${duration(ns)} ${ns < 0 ? "after" : "before"}`;
}

function startOf(panel, i) {
  return `${duration(panel.start[i] / panel.drawn)}${panel.start[i] < 0 ? " before" : " after"} ${panel.from}`;
}

function describe(panel, i) {
  const lane = panel.laneOf(i),
    full = panel.names[panel.name[i]],
    label = panel.called(i);
  const said = [
    ["", label],
    ["duration", duration(panel.duration[i])],
  ];
  const gpu = panel.isGpu(i);
  if (gpu) {
    const call = panel.call[i];
    const op = panel.opOf(i);
    said.push(["op", op < 0 ? "none" : panel.called(op)]);
    said.push([
      "launch",
      call >= 0
        ? `${panel.called(call)}, ${duration((panel.start[i] - panel.start[call]) / panel.drawn)} before, its end ` +
          `${ago((panel.start[i] - panel.end[call]) / panel.drawn)}`
        : call === -2
          ? "not drawn"
          : "not in the trace",
    ]);
  }
  const detail = panel.details[panel.detail[i]];
  const kind = panel.categories[panel.category[i]][0],
    what = { copy: "bytes", Python: "called at" }[kind];
  if (detail) said.push([what || (gpu ? "footprint" : "inputs"), detail]);
  said.push(["kind", kind]);
  said.push(["on", lane.label]);
  said.push(["start", startOf(panel, i)]);
  if (full !== label) said.push(["name", full]);
  return said;
}
