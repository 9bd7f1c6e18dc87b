"use strict";
// How the course judges a guess.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const vm = require("node:vm");

const text = fs.readFileSync(path.join(__dirname, "../../../gallery/course/course.js"), "utf8");
const part = text.slice(text.indexOf("const WORDS"), text.indexOf("class Exercise"));
const judge = vm.runInNewContext(`${part}\n;judge`);

test("a number, written in any way, within its share", () => {
  const check = { right: 262144, within: 0.05, options: [] };
  for (const right of ["262144", "262,144", "262 144", "262k", "2.6e5", "about 262144 times"])
    assert.equal(judge(check, right), true);
  for (const wrong of ["64", "-262144", "300k"]) assert.equal(judge(check, wrong), false);
  for (const none of ["many", "1 or 2", ""]) assert.equal(judge(check, none), null);
});

test("a word for a number", () => {
  assert.equal(judge({ right: 3, within: 0, options: [] }, "three"), true);
  assert.equal(judge({ right: 0, within: 0, options: [] }, "none"), true);
});

test("one of the options, and no more than one", () => {
  const check = { right: "no", options: ["yes", "no"] };
  assert.equal(judge(check, "No!"), true);
  assert.equal(judge(check, "yes, I think"), false);
  assert.equal(judge(check, "yes or no"), null);
  assert.equal(judge(check, "nope"), null);
});

const own =
  text.slice(text.indexOf("const KINDS"), text.indexOf("const GPU ")) +
  text.slice(text.indexOf("// The bytes in a gzip"), text.indexOf("// A panel of the events"));
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
