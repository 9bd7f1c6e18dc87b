"use strict";
// A panel's slices: unpacked from the columns that the page carries, and laid out in lanes. Times are in ns, on the page's axis.

const ARRAYS = { f64: [8, Float64Array], i32: [4, Int32Array], u8: [1, Uint8Array] };

async function inflate(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The arrays of a panel by name. Bytes of equal weight lie together.
function unpack(columns, bytes) {
  const found = {};
  let at = 0;
  for (const [name, type, length] of columns) {
    const [size, Array] = ARRAYS[type];
    const own = new Uint8Array(length * size);
    for (let byte = 0; byte < size; byte++) for (let i = 0; i < length; i++) own[i * size + byte] = bytes[at++];
    found[name] = new Array(own.buffer);
  }
  return found;
}

// The first place in a sorted array (or in its part) whose value is not below `value`.
function place(sorted, value, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

// Stretches of time in order, none of which overlap: what is drawn in one row of a lane. `ids` are what each is of.
class Row {
  constructor(start, end, ids) {
    this.start = start;
    this.end = end;
    this.ids = ids;
    this.lit = null; // up to each place, how many are lit; null: nothing is
  }
  // `covered`: up to each place, how long all are together.
  sum() {
    this.covered = new Float64Array(this.ids.length + 1);
    for (let i = 0; i < this.ids.length; i++) this.covered[i + 1] = this.covered[i] + this.end[i] - this.start[i];
    return this;
  }
  light(mask) {
    this.lit = null;
    if (!mask) return;
    this.lit = new Uint32Array(this.ids.length + 1);
    for (let i = 0; i < this.ids.length; i++) this.lit[i + 1] = this.lit[i] + (mask[this.ids[i]] ? 1 : 0);
  }
  // The first place from `from` on, and before `to`, that is lit; -1: none is.
  firstLit(from, to) {
    return this.lit !== null && this.lit[to] > this.lit[from] ? place(this.lit, this.lit[from] + 1, from, to + 1) - 1 : -1;
  }
  // How long all of it is between two moments.
  within(from, to) {
    const a = place(this.end, from),
      b = place(this.start, to);
    if (b <= a) return 0;
    return this.covered[b] - this.covered[a] - Math.max(0, from - this.start[a]) - Math.max(0, this.end[b - 1] - to);
  }
}

// What is no work: what a program names, and what of Python is around its ops.
const NO_WORK = new Set(["step", "annotation", "GPU annotation", "Python"]);

class Panel {
  constructor(head, columns) {
    Object.assign(this, head);
    this.categoryOf = Object.fromEntries(head.categories.map(([name], i) => [name, i]));
    const { duration, name, track, category, parent, call, detail } = columns;
    Object.assign(this, { duration, name, track, category, parent, call, detail, columns });
    const n = head.n;
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    let moment = head.shift;
    for (let i = 0; i < n; i++) {
      moment += columns.start[i];
      this.start[i] = moment;
      this.end[i] = moment + duration[i];
    }
    this.drawn = 1; // how many times as wide as its times say
    this.mask = null; // of each slice, whether it is lit
    this.lower = head.names.map((own, i) => `${own}\n${head.labels[i] || ""}`.toLowerCase());
    this.layOut();
  }

  // When work is on a lane: starts and ends in order.
  workOf(lane) {
    if (!lane.work) {
      const works = this.categories.map(([name]) => !NO_WORK.has(name)),
        start = [],
        end = [];
      for (let i = 0; i < this.n; i++) {
        if (this.track[i] !== lane.track || !works[this.category[i]]) continue;
        if (end.length && this.start[i] <= end.at(-1)) end[end.length - 1] = Math.max(end.at(-1), this.end[i]);
        else {
          start.push(this.start[i]);
          end.push(this.end[i]);
        }
      }
      lane.work = { start, end };
    }
    return lane.work;
  }
  // The time around a moment in which no work is on a lane: from the end of what is before it to the start of what comes next;
  // null where something is open, or nothing is before or behind it.
  whiteAt(lane, moment) {
    const { start, end } = this.workOf(lane),
      next = place(start, moment);
    return next && next < start.length && end[next - 1] < moment ? [end[next - 1], start[next]] : null;
  }
  // Such a time in which a slice ends, or the next one behind it.
  whiteBehind(i) {
    const lane = this.laneOf(i),
      { start, end } = this.workOf(lane),
      at = place(end, this.end[i]);
    return this.whiteAt(lane, this.end[i]) ?? (at + 1 < start.length ? [end[at], start[at + 1]] : null);
  }
  // Each slice in the first row of its lane that is free: inner ones below the outer ones. A GPU's annotations have rows above
  // its work.
  layOut() {
    const n = this.n,
      depth = new Uint16Array(n),
      counts = this.lanes.map(() => []);
    const above = this.lanes.map(() => []),
      ends = this.lanes.map(() => []),
      note = this.categoryOf["GPU annotation"];
    for (let i = 0; i < n; i++) {
      const own = (this.category[i] === note ? above : ends)[this.track[i]];
      let level = 0;
      while (level < own.length && own[level] > this.start[i] + this.tolerance) level++;
      own[level] = Math.max(own[level] ?? -Infinity, this.end[i]);
      depth[i] = level;
    }
    for (let i = 0; i < n; i++) {
      const track = this.track[i];
      if (this.category[i] !== note) depth[i] += above[track].length;
      counts[track][depth[i]] = (counts[track][depth[i]] || 0) + 1;
    }
    const rows = counts.map((own) =>
      own.map((size) => new Row(new Float64Array(size), new Float64Array(size), new Int32Array(size))),
    );
    const filled = counts.map((own) => own.map(() => 0));
    this.placeInRow = new Int32Array(n);
    for (let i = 0; i < n; i++) {
      const row = rows[this.track[i]][depth[i]],
        at = filled[this.track[i]][depth[i]]++;
      this.placeInRow[i] = at;
      row.start[at] = this.start[i];
      // One that ends a rounding before its neighbour's start would leave the ends out of order.
      row.end[at] = at ? Math.max(this.end[i], row.end[at - 1]) : this.end[i];
      row.ids[at] = i;
    }
    for (const own of rows) for (const row of own) row.sum();
    for (const lane of this.lanes) {
      lane.work = null; // its times are no longer those
      lane.rows = rows[lane.track];
      lane.notes = above[lane.track].length; // rows of annotations
    }
    for (const band of this.bands) {
      const own = (what) => this.columns[`${band.name}_${what}`];
      const start = own("start").map((t) => t * this.drawn + this.shift),
        end = own("end").map((t) => t * this.drawn + this.shift),
        text = own("text");
      band.halves = [0, 1, 2].map((half) => {
        const at = [];
        for (let i = 0; i < text.length; i++) if (band.texts[text[i]][2] === half) at.push(i);
        const pick = (array) => Float64Array.from(at, (i) => array[i]);
        return new Row(
          pick(start),
          pick(end),
          Int32Array.from(at, (i) => text[i]),
        ).sum();
      });
    }
    this.depth = depth;
    let first = Infinity,
      last = -Infinity;
    if (n) first = this.start[0];
    for (let i = 0; i < n; i++) if (this.end[i] > last) last = this.end[i];
    for (const band of this.bands)
      for (const half of band.halves)
        if (half.ids.length) {
          first = Math.min(first, half.start[0]);
          last = Math.max(last, half.end[half.ids.length - 1]);
        }
    this.first = first;
    this.last = last;
  }

  // Draws all of it `times` as wide, from the page's moment 0 on; what its times are stays as it is.
  stretch(times) {
    this.drawn = times;
    this.shift *= times;
    this.steps = this.steps.map(([name, start, end]) => [name, start * times, end * times]);
    for (let i = 0; i < this.n; i++) {
      this.start[i] *= times;
      this.end[i] *= times;
    }
    this.layOut();
  }

  called(i) {
    return (this.laneOf(i).gpu && this.labels[this.name[i]]) || this.names[this.name[i]];
  }

  // What a call launched, by the call.
  get launched() {
    if (!this._launched) {
      this._launched = new Map();
      for (let i = 0; i < this.n; i++)
        if (this.call[i] >= 0) {
          if (!this._launched.has(this.call[i])) this._launched.set(this.call[i], []);
          this._launched.get(this.call[i]).push(i);
        }
    }
    return this._launched;
  }

  // Whether it lies in another slice that is lit, too.
  isInside(i) {
    let at = this.parent[i];
    while (at >= 0 && !this.mask[at]) at = this.parent[at];
    return at >= 0;
  }

  // From the outermost span to the slice: over the call that launched it, where it is the GPU's.
  chain(i) {
    const found = [i];
    let at = this.call[i] >= 0 ? this.call[i] : this.parent[i];
    while (at >= 0) {
      found.unshift(at);
      at = this.parent[at];
    }
    return found;
  }

  // The work of the GPU by what makes it the same in another trace: which of the recorded steps launched it, the op, the kernel,
  // its footprint, and which of these it is.
  get counterparts() {
    if (!this._counterparts) {
      const keys = new Map(),
        count = new Map(),
        starts = this.steps.map(([, start]) => start + this.shift);
      for (let i = 0; i < this.n; i++) {
        if (!this.isGpu(i)) continue;
        const call = this.call[i],
          step = place(starts, (call >= 0 ? this.start[call] : this.start[i]) + 1) - 1,
          op = this.opOf(i);
        const same = [step, op < 0 ? "" : this.names[this.name[op]], this.names[this.name[i]], this.details[this.detail[i]]].join(
          "\n",
        );
        const nth = count.get(same) || 0;
        count.set(same, nth + 1);
        keys.set(`${same}\n${nth}`, i);
      }
      this._counterparts = keys;
      this._keys = new Map([...keys].map(([key, i]) => [i, key]));
    }
    return this._counterparts;
  }
  counterpart(other, i) {
    const found = this.counterparts;
    return other.counterparts && (found.get(other._keys.get(i)) ?? -1);
  }
  // The op that launched a slice of the GPU; -1: none.
  opOf(i) {
    let at = this.call[i];
    const op = this.categoryOf.op;
    for (let left = 500; at >= 0 && this.category[at] !== op && left; left--) at = this.parent[at];
    return at;
  }
  isGpu(i) {
    return this.laneOf(i).gpu && this.category[i] !== this.categoryOf["GPU annotation"];
  }
  laneOf(i) {
    if (!this._lanes) {
      this._lanes = [];
      for (const lane of this.lanes) this._lanes[lane.track] = lane;
    }
    return this._lanes[this.track[i]];
  }

  light(mask) {
    this.mask = mask;
    for (const lane of this.lanes) for (const row of lane.rows) row.light(mask);
  }
}

// As the report writes them, below a microsecond to the nanosecond.
function duration(ns) {
  const us = Math.abs(ns) / 1000;
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 1000) return `${(us / 1000).toFixed(2)} ms`;
  return us < 1 && us > 0 ? `${us.toFixed(3)} µs` : `${us.toFixed(1)} µs`;
}

function bytes(size) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}
