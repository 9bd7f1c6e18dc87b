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
