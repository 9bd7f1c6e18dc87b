"use strict";
// How the course judges a guess.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const text = fs.readFileSync(path.join(__dirname, "../../../gallery/course/course.js"), "utf8");
const part = text.slice(text.indexOf("const WORDS"), text.indexOf("function shown"));
const judge = vm.runInNewContext(`${part}\n;judge`);

test("a number, written in any way, within its share", () => {
  const question = { right: 262144, within: 0.05, options: [], unit: "times" };
  for (const right of ["262144", "262,144", "262 144", "262k", "2.6e5", "about 262144 times", "262144x"])
    assert.equal(judge(question, right), true, right);
  for (const wrong of ["64", "-262144", "300k"]) assert.equal(judge(question, wrong), false, wrong);
  for (const none of ["many", "1 or 2", "", "64 * 64", "262144 ms"]) assert.equal(judge(question, none), null, none);
});

test("a unit counts", () => {
  const question = { right: 2, within: 0.1, options: [], unit: "ms" };
  for (const right of ["2", "2 ms", "2000 us", "2000 µs", "0.002 s", "2 milliseconds"])
    assert.equal(judge(question, right), true, right);
  for (const wrong of ["2 s", "2 µs"]) assert.equal(judge(question, wrong), false, wrong);
  for (const none of ["2 GB", "2 kernels", "two or three"]) assert.equal(judge(question, none), null, none);
});

test("a word for a number", () => {
  assert.equal(judge({ right: 3, within: 0, options: [], unit: "kernels" }, "three kernels"), true);
  assert.equal(judge({ right: 0, within: 0, options: [], unit: "kernels" }, "none"), true);
});

test("a guess of nothing has its place on the scale, which is no power of ten then", () => {
  const begins = text.indexOf("function shown("),
    code = text.slice(begins, text.indexOf("\n}\n", text.indexOf("function scale(")) + 3);
  const made = [];
  const element = (tag, said) => {
    const own = { tag, said, style: {}, setAttribute: () => {}, append: () => {} };
    made.push(own);
    return own;
  };
  const scale = vm.runInNewContext(`${code};scale`, { element });
  const places = (guesses) => {
    made.length = 0;
    scale({ within: 0.1, right: 5, unit: "kernels" }, guesses);
    return made.filter((own) => own.tag === "span").map((own) => Number.parseFloat(own.style.left));
  };
  const [none, four, right] = places([0, 4]);
  assert.equal((four - none) / (right - none), 4 / 5);
  const [one, ten, five] = places([1, 10]);
  assert.ok(Math.abs((five - one) / (ten - one) - Math.log10(5)) < 0.02, `${one} ${ten} ${five}`);
});

test("what is told of an exercise: when it was right, and whether something was skipped, which comes again", () => {
  const code = text.slice(text.indexOf("const PROGRESS"), text.indexOf("// ---- guesses")),
    of = (state) => ({ guesses: [], skipped: 0, at: 0, ...state }),
    asked = [
      { right: 1, again: true },
      { right: 1 },
      { right: 2 },
      { right: 1, skipped: 1 },
      { right: 2, skipped: 1 },
      { right: 0 },
      { right: 0, again: true },
    ];
  const [told, due] = vm.runInNewContext(
    `${code};[own.map(stateOf), own.map((one) => Start.prototype.isDue({ a: one, b: 1, c: 1, d: 1 }, "a"))]`,
    { own: asked.map(of) },
  );
  const right = "✓ right",
    second = "✓ right the second time",
    so_far = ", as far as answered";
  assert.deepEqual([...told], [right, right, second, right + so_far, second + so_far, "seen", "✓ right when it came again"]);
  assert.deepEqual([...due], [false, false, true, true, true, true, false]);
});

test("one of the options, and nothing else", () => {
  const question = { right: "no", options: ["yes", "no"] };
  assert.equal(judge(question, "no"), true);
  assert.equal(judge(question, "yes"), false);
  assert.equal(judge(question, "nope"), null);
});

const traces = fs.readFileSync(path.join(__dirname, "../../../gallery/course/own_trace.js"), "utf8");
const own =
  traces.slice(traces.indexOf("const KINDS"), traces.indexOf("const GPU ")) +
  traces.slice(traces.indexOf("// The bytes in a gzip"), traces.indexOf("// A panel of the events"));
const { KINDS, unzipped, parsed } = vm.runInNewContext(`${own}\n;({ KINDS, unzipped, parsed })`, {
  Blob,
  DecompressionStream,
});
const EVENT = '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "args": {"x": {"y": 1}}}';

test("a category of any name is none of the known ones", () => {
  for (const name of ["constructor", "toString", "__proto__"]) assert.equal(KINDS[name], undefined);
  assert.equal(KINDS.cpu_op, "op");
});

test("a gzip file that is cut gives what is whole", async () => {
  const whole = `{"traceEvents": [${Array(5000).fill(EVENT).join(",\n")}]}`,
    zipped = require("node:zlib").gzipSync(whole, { level: 0 });
  const [all, half] = [await unzipped(zipped), await unzipped(zipped.subarray(0, zipped.length / 2))];
  assert.equal(all.cutOff, false);
  assert.equal(all.bytes.byteLength, whole.length);
  assert.equal(half.cutOff, true);
  const trace = parsed(new TextDecoder().decode(half.bytes));
  assert.equal(trace.cutOff, true);
  assert.ok(trace.traceEvents.length > 1000 && trace.traceEvents.length < 5000, String(trace.traceEvents.length));
});

test("of a text that is cut, the whole events; of another, none", () => {
  assert.equal(parsed(`{"traceEvents": [${EVENT}, ${EVENT}, ${EVENT.slice(0, 30)}`).traceEvents.length, 2);
  assert.equal(parsed(`[${EVENT}, ${EVENT.slice(0, 30)}`).length, 1);
  assert.equal(parsed(`{"traceEvents": [${EVENT}]}`).cutOff, undefined);
  assert.throws(() => parsed("not at all"), /no trace: this is not JSON/);
});

// An element of a page, as far as a table needs it.
function element(tag, said = "") {
  const own = { tag, said, children: [], append: (...more) => own.children.push(...more) };
  const make = (child) => () => {
    own.append(element(child));
    return own.children.at(-1);
  };
  return Object.assign(own, { createTHead: make("thead"), createTBody: make("tbody"), insertRow: make("tr") });
}
const words = (own) => (own.children.length ? own.children.map(words) : own.said);

test("the recorded kernels' mean durations stand left of one's own", () => {
  const begins = traces.indexOf("function compared(");
  const code = traces.slice(begins, traces.indexOf("\n}\n", begins) + 2);
  const compared = vm.runInNewContext(`${code};compared`, { element, duration: (ns) => `${ns} ns` });
  const panel = (duration, name) => ({
    n: duration.length,
    duration,
    name,
    names: ["gemm", "add", "an op"],
    isGpu: (i) => name[i] < 2,
    called: (i) => ["GEMM", "add", ""][name[i]],
  });
  const table = compared(panel([10, 20, 60, 7, 1], [0, 0, 0, 2, 1]), panel([5, 15, 9], [0, 0, 2]));
  assert.deepEqual(words(table), [[["kernel", "recorded", "yours"]], [["GEMM", "3 x 30 ns", "2 x 10 ns"]]]);
});

test("one's own trace is drawn from its first recorded step on", () => {
  const kinds = traces.slice(traces.indexOf("const KINDS"), traces.indexOf("// The bytes in a gzip"));
  const begins = traces.indexOf("function panelOf(");
  const code = traces.slice(begins, traces.indexOf("\n}\n", begins) + 2);
  class Panel {
    constructor(head) {
      this.head = head;
    }
  }
  const panelOf = vm.runInNewContext(`${kinds}\n${code};panelOf`, { Panel });
  const event = (cat, name, ts) => ({ ph: "X", cat, name, ts, dur: 10, tid: 1 });
  const recorded = { names: [], labels: [], n: 0, name: [], category: [], categories: [] };
  const events = [event("cpu_op", "aten::mm", 100), event("user_annotation", "ProfilerStep#2", 150)];
  assert.equal(panelOf(events, "mine", recorded).head.shift, -50_000);
  assert.equal(panelOf(events.slice(0, 1), "mine", recorded).head.shift, 0);
});

test("of slices that start together the longer one is the outer one", () => {
  const panel = traces.slice(traces.indexOf("const KINDS"), traces.indexOf("async function readOwn"));
  const made = traces.slice(traces.indexOf("function panelOf"), traces.indexOf("// The GPU work that both traces have"));
  const { panelOf } = vm.runInNewContext(
    `class Panel { constructor(head, columns) { Object.assign(this, { head, columns }); } }\n${panel}${made}\n;({ panelOf })`,
    { Float64Array, Int32Array, Uint8Array },
  );
  const slice = (name, ts, dur) => ({ ph: "X", cat: "cpu_op", name, pid: 1, tid: 1, ts, dur });
  const events = [slice("inner", 5, 2), slice("outer", 5, 9), slice("first", 1, 2)];
  const NOTHING = { names: [], labels: {}, categories: [["op"]], category: [], name: [], n: 0 };
  const { head, columns } = panelOf(events, "own", NOTHING);
  const names = Array.from(columns.name, (i) => head.names[i]);
  assert.deepEqual(names, ["first", "outer", "inner"]);
  assert.deepEqual(Array.from(columns.parent), [-1, -1, 1]);
  const after = panelOf([slice("a", 0, 10), slice("b", 10, 5)], "own", { ...NOTHING });
  assert.deepEqual(Array.from(after.columns.parent), [-1, -1], "one that begins as another ends is not in it");
});
