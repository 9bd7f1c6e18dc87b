"use strict";
// What a page's script works out without a browser: unpacking the columns, searching, rows, and how numbers are written.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

// The scripts are no modules: a page has them in one element. They are run here in one context, and asked for their names.
function load(...files) {
  const context = vm.createContext({ atob, Blob, Response, DecompressionStream, Uint8Array, Float64Array, Int32Array, console });
  const text = files.map((file) => fs.readFileSync(path.join(__dirname, file), "utf8").replace(/^"use strict";/, "")).join("\n");
  return (expression) => vm.runInContext(`${text}\n;(${expression})`, vm.createContext({ ...context }));
}

const assets = "../../trace_reader/write/assets";
const ask = load(`${assets}/trace.js`);
// Values of another context have other prototypes: compared as JSON.
const same = (expression, expected) => assert.deepEqual(JSON.parse(JSON.stringify(ask(expression))), expected);

test("bytes of equal weight lie together", () => {
  same('Array.from(unpack([["a", "i32", 2]], [1, 3, 2, 0, 0, 0, 0, 0]).a)', [513, 3]);
  same('Object.values(unpack([["a", "u8", 1], ["b", "u8", 2]], [7, 8, 9])).map((own) => Array.from(own))', [[7], [8, 9]]);
});

test("the first place that is not below", () => {
  same("[0, 1, 2, 3, 9].map((value) => place([1, 2, 2, 5], value))", [0, 0, 1, 3, 4]);
  same("place([1, 2, 2, 5], 2, 2)", 2);
});

test("a row counts what is lit, and how long its slices are together", () => {
  const row = "(() => { const row = new Row([0, 10, 20], [5, 15, 40], [4, 2, 7]).sum();";
  same(`${row} return Array.from(row.covered); })()`, [0, 5, 10, 30]);
  same(
    `${row} row.light([0, 0, 1, 0, 0, 0, 0, 1]); return [row.firstLit(0, 3), row.firstLit(2, 3), row.firstLit(0, 1)]; })()`,
    [1, 2, -1],
  );
  same(`${row} row.light(null); return row.firstLit(0, 3); })()`, -1);
});

test("white space behind a slice is that in which it ends, or the next one", () => {
  // A lane with work from 0 to 10, 20 to 30 and 40 to 50; an annotation that ends at 15, one that ends at 25.
  const own = `(() => { const panel = Object.create(Panel.prototype); Object.assign(panel, { end: [10, 30, 50, 15, 25],
    laneOf: () => ({ work: { start: [0, 20, 40], end: [10, 30, 50] } }) }); return [0, 1, 2, 3, 4].map((i) => panel.whiteBehind(i)); })()`;
  same(own, [[10, 20], [30, 40], null, [10, 20], [30, 40]]);
});

test("times and sizes in the unit that suits them", () => {
  same("[0, 500, 1000, 999_900, 1e6, 1.5e9].map(duration)", ["0.0 µs", "0.500 µs", "1.0 µs", "999.9 µs", "1.00 ms", "1.50 s"]);
  same("[0, 1023, 1024, 1.5 * 2 ** 20].map(bytes)", ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]);
});

test("columns are inflated as Python's gzip wrote them", async () => {
  const zlib = require("node:zlib");
  const text = zlib.gzipSync(Buffer.from([1, 2, 3])).toString("base64");
  assert.deepEqual(Array.from(await ask(`inflate(${JSON.stringify(text)})`)), [1, 2, 3]);
});

test("a cell's number counts its unit in", () => {
  const page = fs.readFileSync(path.join(__dirname, `${assets}/page.js`), "utf8");
  const begins = page.indexOf("const UNITS");
  const number = vm.runInNewContext(`${page.slice(begins, page.indexOf("\n}\n", begins) + 2)};number`, { NaN });
  const values = ["3 us", "1.5 ms", "2 s", "7 B", "3 KiB", "2 MiB", "1 GiB", "2 TiB", "40%", "-1,234.5", "unknown"];
  assert.deepEqual(values.map(number), [3, 1500, 2e6, 7, 3072, 2 * 2 ** 20, 2 ** 30, 2 * 2 ** 40, 40, -1234.5, Number.NaN]);
});

test("the line of a step is where its panel is moved to", () => {
  const timeline = fs.readFileSync(path.join(__dirname, `${assets}/timeline.js`), "utf8");
  const begins = timeline.indexOf("  drawGrid() {");
  const method = timeline.slice(begins, timeline.indexOf("\n  }\n", begins) + 4);
  const lines = [];
  const nothing = () => undefined;
  const g = { beginPath: nothing, stroke: nothing, setLineDash: nothing, lineTo: nothing, moveTo: (x, y) => lines.push([x, y]) };
  const [first, second] = [0, -3000].map((shift, i) => ({ shift, steps: [["ProfilerStep#2", 5000 + 2000 * i, 100]] }));
  const own = {
    g,
    panels: [first, second],
    items: [first, second].map((panel, i) => ({ panel, height: 20, at: 40 * i })),
    ticks: () => [],
    top: (item) => item.at,
    x: (at) => at / 100,
    left: 10,
    width: 500,
  };
  vm.runInNewContext(`({${method}})`).drawGrid.call(own);
  assert.deepEqual(lines, [
    [50.5, 0],
    [40.5, 40],
  ]);
});
