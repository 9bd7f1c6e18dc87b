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
    this.lit = null; // of how many up to each place it is lit; null: nothing is
  }
  light(mask) {
    this.lit = null;
    if (!mask) return;
    this.lit = new Uint32Array(this.ids.length + 1);
    for (let i = 0; i < this.ids.length; i++) this.lit[i + 1] = this.lit[i] + (mask[this.ids[i]] ? 1 : 0);
  }
  isLit(from, to) {
    return this.lit !== null && this.lit[to] > this.lit[from];
  }
}

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
    this.mask = null; // of each slice, whether it is lit
    this.lower = head.names.map((own, i) => `${own}\n${head.labels[i] || ""}`.toLowerCase());
    this.layOut();
  }

  // Each slice in the first row of its lane that is free: inner ones below the outer ones.
  layOut() {
    const n = this.n, depth = new Uint8Array(n), ends = this.lanes.map(() => []), counts = this.lanes.map(() => []);
    for (let i = 0; i < n; i++) {
      const own = ends[this.track[i]];
      let level = 0;
      while (level < own.length && own[level] > this.start[i] + this.tolerance) level++;
      if (level > 250) level = 250;
      own[level] = this.end[i];
      depth[i] = level;
      counts[this.track[i]][level] = (counts[this.track[i]][level] || 0) + 1;
    }
    const rows = counts.map((own) => own.map((size) => new Row(new Float64Array(size), new Float64Array(size), new Int32Array(size))));
    const filled = counts.map((own) => own.map(() => 0));
    for (let i = 0; i < n; i++) {
      const row = rows[this.track[i]][depth[i]], at = filled[this.track[i]][depth[i]]++;
      row.start[at] = this.start[i];
      row.end[at] = this.end[i];
      row.ids[at] = i;
    }
    for (const lane of this.lanes) lane.rows = rows[lane.track];
    for (const band of this.bands) {
      const own = (what) => this.columns[`${band.name}_${what}`];
      const start = own("start").map((t) => t + this.shift), end = own("end").map((t) => t + this.shift), text = own("text");
      band.halves = [0, 1, 2].map((half) => {
        const at = [];
        for (let i = 0; i < text.length; i++) if (band.texts[text[i]][2] === half) at.push(i);
        const pick = (array) => Float64Array.from(at, (i) => array[i]);
        return new Row(pick(start), pick(end), Int32Array.from(at, (i) => text[i]));
      });
    }
    this.depth = depth;
    let first = Infinity, last = -Infinity;
    if (n) first = this.start[0];
    for (let i = 0; i < n; i++) if (this.end[i] > last) last = this.end[i];
    for (const band of this.bands) for (const half of band.halves) if (half.ids.length) {
      first = Math.min(first, half.start[0]);
      last = Math.max(last, half.end[half.ids.length - 1]);
    }
    this.first = first;
    this.last = last;
  }

  called(i) {
    return this.labels[this.name[i]] || this.names[this.name[i]];
  }

  // What a call launched, by the call.
  get launched() {
    if (!this._launched) {
      this._launched = new Map();
      for (let i = 0; i < this.n; i++) if (this.call[i] >= 0) {
        if (!this._launched.has(this.call[i])) this._launched.set(this.call[i], []);
        this._launched.get(this.call[i]).push(i);
      }
    }
    return this._launched;
  }

  // From the outermost span to the slice: over the call that launched it, where it is the GPU's.
  chain(i) {
    const found = [i];
    let at = this.call[i] >= 0 ? this.call[i] : this.parent[i];
    while (at >= 0 && found.length < 200) {
      found.unshift(at);
      at = this.parent[at];
    }
    return found;
  }

  // The slices of a name: which one of them a slice is, and the one at such a place.
  ordinal(i) {
    let nth = 0;
    for (let k = 0; k < i; k++) if (this.name[k] === this.name[i] && this.isGpu(k)) nth++;
    return nth;
  }
  nth(text, nth) {
    const number = this.names.indexOf(text);
    if (number < 0) return -1;
    for (let k = 0; k < this.n; k++) if (this.name[k] === number && this.isGpu(k) && nth-- === 0) return k;
    return -1;
  }
  isGpu(i) {
    return this.laneOf(i).gpu && this.categories[this.category[i]][0] !== "annotation";
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

function duration(ns) {
  const us = Math.abs(ns) / 1000;
  if (us >= 1e6) return `${(us / 1e6).toFixed(3)} s`;
  if (us >= 1e4) return `${(us / 1e3).toFixed(2)} ms`;
  return us >= 100 ? `${us.toFixed(1)} us` : `${us.toFixed(3).replace(/0{1,2}$/, "")} us`;
}
