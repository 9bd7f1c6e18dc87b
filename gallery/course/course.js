// The course: an exercise asks for a guess, lets one look and guess again or mark what shows it, and explains at last.
// The progress is kept in the browser.

const PROGRESS = "profiling-in-pytorch",
  PLACE = `${PROGRESS}/`, // of an exercise, and its file behind it
  COME_AGAIN_AFTER = 3; // exercises

// What is known of each exercise: `right` is the guess that was (1, 2, or 0: none), `at` how many others had been done before it.
// Each has a place of its own: what another page has stored may come late, and must not be overwritten.
function progress() {
  try {
    const known = {};
    for (const [file, own] of Object.entries(JSON.parse(localStorage.getItem(PROGRESS)) || {})) {
      // As earlier courses wrote it: all in one place, or a word.
      known[file] = typeof own === "string" ? { right: own === "right" ? 1 : 0, guesses: [], at: 0 } : own;
    }
    for (const place of places()) known[place.slice(PLACE.length)] = JSON.parse(localStorage.getItem(place));
    return known;
  } catch {
    return {};
  }
}

function places() {
  return Object.keys(localStorage).filter((place) => place.startsWith(PLACE));
}

// The first round counts; a later one can only mend that a question was missed.
function remember(exercise, state) {
  const known = progress(),
    before = known[exercise],
    at = Object.keys(known).length,
    own = before ? { ...before, again: (state.right === 1 && !state.skipped) || before.again, at } : { ...state, at };
  try {
    localStorage.setItem(PLACE + exercise, JSON.stringify(own));
  } catch {
    // a browser without storage: the course works all the same
  }
}

function forget() {
  for (const place of [PROGRESS, ...places()]) localStorage.removeItem(place);
}

function stateOf(own) {
  if (!own) return "";
  if (own.again && (own.right !== 1 || own.skipped)) return "✓ right when it came again";
  const right = { 1: "✓ right", 2: "✓ right the second time" }[own.right];
  return right && own.skipped ? `${right}, as far as answered` : right || "seen";
}

// Of a link to an exercise: its number or letter, which stands before it.
function label(link) {
  return link.previousElementSibling.textContent;
}

class Start {
  constructor() {
    addEventListener("pageshow", () => this.show());
    addEventListener("storage", () => this.show()); // what another page has stored may come late
    document.getElementById("forget").addEventListener("click", () => {
      forget();
      this.show();
    });
    this.show();
  }
  show() {
    const known = progress(),
      links = [...document.querySelectorAll("a[data-exercise]")],
      file = (link) => link.dataset.exercise;
    for (const link of links) link.nextElementSibling.textContent = stateOf(known[file(link)]);
    for (const chapter of document.querySelectorAll(".chapter")) {
      const own = [...chapter.querySelectorAll("a[data-exercise]")],
        done = own.filter((link) => known[file(link)]).length;
      const left = own.find((link) => !known[file(link)]);
      chapter.querySelector(".done").textContent = done ? `· ${done} of ${own.length} done` : "";
      chapter.querySelector("progress").value = done;
      chapter
        .querySelector(".next")
        .replaceChildren(
          ...(left
            ? [element("a", `${done ? "next" : "begin"}: ${label(left)}`, { href: file(left), title: left.textContent })]
            : []),
        );
      chapter.classList.toggle("complete", done === own.length);
    }
    const seen = links.filter((link) => known[file(link)]),
      right = seen.filter((link) => known[file(link)].right === 1 && !known[file(link)].skipped);
    document.getElementById("progress").textContent = seen.length
      ? `${seen.length} of ${links.length} done, ${right.length} right at the first guess`
      : `${links.length} exercises`;
    const next = links.find((link) => !known[file(link)]),
      go = document.getElementById("continue");
    document.getElementById("far").value = seen.length;
    document.getElementById("asks").textContent = seen.length && next ? next.textContent : "";
    go.textContent = !seen.length ? "begin" : next ? `continue: ${label(next)}` : "all done: once more";
    go.href = file(next || links[0]);
    this.again(seen.filter((link) => this.isDue(known, file(link))).slice(0, 5));
  }
  // Missed or skipped, not mended since, and some exercises ago.
  isDue(known, file) {
    const own = known[file];
    return (own.right !== 1 || own.skipped > 0) && !own.again && Object.keys(known).length - own.at > COME_AGAIN_AFTER;
  }
  again(links) {
    const place = document.getElementById("again");
    place.hidden = !links.length;
    place.querySelector("ul").replaceChildren(
      ...links.map((link) => {
        const item = element("li");
        item.append(element("a", link.textContent, { href: link.dataset.exercise }));
        return item;
      }),
    );
  }
}

// ---- guesses

const WORDS = {
  none: 0,
  no: 0,
  zero: 0,
  one: 1,
  two: 2,
  three: 3,
  four: 4,
  five: 5,
  six: 6,
  seven: 7,
  eight: 8,
  nine: 9,
  ten: 10,
  twice: 2,
  once: 1,
};
const SCALES = [
  { ns: 1e-9, us: 1e-6, µs: 1e-6, μs: 1e-6, ms: 1e-3, s: 1, microseconds: 1e-6, milliseconds: 1e-3, seconds: 1 },
  { times: 1, x: 1, fold: 1 },
  { "%": 1, percent: 1 },
  { "MB/s": 1e-3, "GB/s": 1, "TB/s": 1e3 },
];

// The number that a guess means, in the question's unit; null if it is no single number, or in a unit of something else.
function valueOf(question, typed) {
  const text = typed.trim().replaceAll(/(?<=\d)[, ](?=\d{3}(?!\d))/g, "");
  const found = /^(?:about |~|≈)?\s*(-?(?:\d+\.?\d*|\.\d+)(?:e\d+)?|[a-z]+)\s*(k(?![a-z]))?\s*([^\d\s].*)?$/i.exec(text);
  if (!found) return null;
  const [, number, thousands, named] = found;
  const value = /^[a-z]/i.test(number) ? WORDS[number.toLowerCase()] : parseFloat(number) * (thousands ? 1000 : 1);
  if (value === undefined) return null;
  const unit = named?.trim().replace(/[.!]$/, "");
  if (!unit || unit === question.unit) return value;
  const scale = SCALES.find((own) => question.unit in own);
  if (scale) return unit in scale ? (value * scale[unit]) / scale[question.unit] : null;
  return /^[a-z-]+$/i.test(unit) && !SCALES.some((own) => unit in own) ? value : null; // "5 kernels": a count has any name
}

// Whether a guess is right; null if it cannot be told.
function judge(question, typed) {
  if (question.mark) return typed === question.right;
  if (question.options.length) return question.options.includes(typed) ? typed === question.right : null;
  const value = valueOf(question, typed);
  if (value === null) return null;
  return Math.abs(value - question.right) <= question.within * Math.abs(question.right) + 1e-9;
}

function shown(question, value) {
  const text = typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 6 }) : value;
  if (typeof value !== "number" || !question.unit) return text;
  const isMany = /^[a-z-]{4,}$/.test(question.unit) && question.unit !== "times"; // kernels, steps; not µs
  const unit = value === 1 && isMany ? question.unit.replace(/ies$/, "y").replace(/(?<=ch)es$|s$/, "") : question.unit;
  return `${text}${unit === "%" ? "" : " "}${unit}`;
}

function rounded(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 2 });
}

// How far off a number is, without the number.
function tooMuch(question, value) {
  const side = value < question.right ? "too low" : "too high",
    apart = value > 0 && question.right > 0 ? Math.max(value / question.right, question.right / value) : Infinity;
  return apart > 10 ? `far ${side}` : apart < 1.5 ? `near, but ${side}` : side;
}

// Guesses and what is right on a line, each by its name and number; in powers of ten where all are above 0.
function scale(question, guesses) {
  const marks = [...guesses.map((value, n) => [n ? "second guess" : "your guess", value]), ["right", question.right]],
    logs = marks.every(([, value]) => value > 0),
    at = marks.map(([, value]) => (logs ? Math.log10(value) : value)),
    least = Math.min(...at),
    most = Math.max(...at),
    room = Math.max(most - least, logs ? 0.3 : 1);
  const line = element("div", undefined, { className: "scale", role: "img" });
  const off = question.within * Math.abs(question.right),
    counts = off ? ` (from about ${rounded(question.right - off)} to ${rounded(question.right + off)})` : "",
    said = (name, value) => `${name}: ${shown(question, value)}${name === "right" ? counts : ""}`;
  line.setAttribute("aria-label", marks.map(([name, value]) => said(name, value)).join(", "));
  marks.forEach(([name, value], n) => {
    const mark = element("span", said(name, value), { className: name === "right" ? "right" : "guess" });
    const left = 10 + (80 * (at[n] - least + (room - (most - least)) / 2)) / room;
    mark.style.left = `${left}%`;
    mark.style.transform = `translateX(${left < 30 ? 0 : left > 70 ? -100 : -50}%)`; // within the line
    mark.style.top = `${n * 1.4}rem`;
    line.append(mark);
  });
  line.style.height = `${marks.length * 1.4 + 0.4}rem`;
  return line;
}

// ---- an exercise

const COLLECTIVE = /^(nccl|gloo):|^c10d::|^record_param_comms$/; // by name: the ranges and ops of a process group
const SELECT_FIRST =
  "Select a slice or white space first: click it, or use the arrow keys, and G for the white space behind a slice.";

class Exercise {
  constructor(data) {
    this.data = data;
    const get = (id) => document.getElementById(id);
    this.said = get("said");
    this.form = get("guess");
    this.guesses = data.questions.map(() => []);
    this.stages = [...document.querySelectorAll(".stages li")];
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const field = get("typed");
      if (field) this.guess(field.value);
    });
    get("explain").addEventListener("click", () => this.explain());
    get("open").addEventListener("click", () => {
      this.look();
      get("trace").focus({ preventScroll: true }); // the button that had it is hidden
    });
    get("copy").addEventListener("click", () => this.copy(get("command")));
    get("mark").addEventListener("click", () => this.mark());
    this.stage(0);
    this.ask(0);
    const before = progress()[data.exercise];
    if (before) this.said.textContent = `Last time: ${stateOf(before).replace("✓ ", "")}.`; // not what: it would be the answer
    if (get("drop")) this.takesTraces(get("drop"), get("file"));
  }
  stage(now) {
    this.stages.forEach((item, n) =>
      n === now ? item.setAttribute("aria-current", "step") : item.removeAttribute("aria-current"),
    );
    this.stages.forEach((item, n) => item.classList.toggle("past", n < now));
  }
  get question() {
    return this.data.questions[this.asked];
  }
  ask(number) {
    this.asked = number;
    const { ask, options, unit } = this.question,
      set = element("fieldset");
    set.append(element("legend", ask));
    for (const option of options) {
      const button = element("button", option, { type: "button", className: "option" });
      button.addEventListener("click", () => this.guess(option));
      set.append(button);
    }
    if (!options.length && !this.question.mark) {
      const label = element("label", "", { htmlFor: "typed" }),
        field = element("input", undefined, { id: "typed", type: "text", autocomplete: "off", required: true });
      label.append(element("span", `a number${unit ? `, in ${unit}` : ""}`, { className: "hidden" }));
      const line = element("p", undefined, { className: "typed" });
      line.append(label, field, element("span", ` ${unit} `), element("button", "check my guess", { type: "submit" }));
      set.append(line);
    }
    this.form.replaceChildren(set);
    this.showMarking();
  }
  // Of a question that a mark answers; of an exercise without one, also beside and behind its questions.
  get takesMarks() {
    const { questions, lights, marked } = this.data;
    return questions.some((one) => one.mark) ? this.question.mark && !this.isClosed : marked && lights.length > 0;
  }
  showMarking() {
    document.getElementById("marking").hidden = !this.report || this.explained || !this.takesMarks;
  }
  guess(typed) {
    const { question } = this,
      right = judge(question, typed);
    if (right === null) {
      this.said.textContent = question.unit
        ? `Type one number, in ${question.unit}${/µs|ms/.test(question.unit) ? " or another unit of time" : ""}.`
        : "Type one number.";
      return;
    }
    this.report?.timeline.light(null); // what the last guess lit
    const own = this.guesses[this.asked];
    own.push(question.options.length ? typed : valueOf(question, typed));
    for (const button of this.form.querySelectorAll(".option"))
      if (button.textContent === typed) {
        button.classList.add(right ? "hit" : "missed");
        button.disabled = true;
      }
    this.look();
    const first = own.length === 1,
      answer = shown(question, question.right);
    if (right) this.said.textContent = first ? "Right." : "Right, the second time.";
    else if (first && question.options.length !== 2) {
      const of = question.options.indexOf(typed),
        off = question.options.length ? question.seen[of] || "" : `It is ${tooMuch(question, own[0])}.`;
      this.said.textContent = ["Not that.", off, "Look at the trace, and guess again."].filter(Boolean).join(" ");
      this.lightsNamed(question.slices[of] || []);
      (document.getElementById("typed") || this.said).focus({ preventScroll: true }); // the button that had it is disabled
      return;
    } else {
      const why = question.why[Math.max(question.options.indexOf(typed), 0)];
      this.said.textContent = `Not this time: ${answer}.${why ? ` ${why}` : ""}`;
    }
    this.goOn();
  }
  // The slices of a guess that is not right, in the trace of which the facts are told.
  async lightsNamed(names) {
    await this.looking;
    if (!names.length) return;
    const panel = this.report.recorded || this.report.panels[this.data.told],
      known = (test) =>
        panel.names.flatMap((own, n) => (names.some((name) => test(own, panel.labels[n] ?? own, name)) ? [n] : []));
    let ids = known((own, label, name) => own === name || label === name);
    if (!ids.length) ids = known((_, label, name) => label.toLowerCase().includes(name.toLowerCase()));
    if (ids.length) this.report.timeline.light({ names: { [this.report.panels.indexOf(panel)]: ids } });
  }
  goOn() {
    this.said.focus({ preventScroll: true });
    if (this.asked + 1 < this.data.questions.length) {
      this.said.textContent += " And then:";
      this.ask(this.asked + 1);
      return;
    }
    this.close();
    document.getElementById("explain").classList.add("go");
    this.showMarking();
    if (this.takesMarks) this.said.textContent += " Mark what shows it, or read why.";
  }
  // The last question stays, of several options with the right one.
  close() {
    this.isClosed = true;
    for (const button of this.form.querySelectorAll("button")) {
      if (button.textContent === this.question.right) button.classList.add("hit");
      button.disabled = true;
    }
    const field = document.getElementById("typed");
    if (field) field.disabled = true;
  }
  // The recording, with nothing lit; of a program to be mended, the command and the hints.
  look() {
    if (this.looking) return this.looking;
    this.stage(1);
    document.getElementById("closed").hidden = true;
    for (const place of document.querySelectorAll("#look, #recorded, #selected, #drop")) place.hidden = false;
    document.getElementById("work").classList.add("open");
    document.getElementById("explain").textContent = "explain it";
    this.looking = start().then(() => {
      this.report = window.report;
      this.showMarking();
      for (const panel of this.report.panels) if (panel.folded) this.report.timeline.toggle(); // a job's next rank: slices to select
      this.report.timeline.light(null);
      this.report.onSelect = () => {
        const nothing = !this.report.timeline.selected && !this.report.timeline.white; // a range alone is none
        document.getElementById("mark").disabled = nothing;
        document.getElementById("marked").textContent = nothing ? SELECT_FIRST : "";
      };
      document.getElementById("marked").textContent = SELECT_FIRST;
      // It has opened above what was pressed; on a narrow screen the question is below it.
      document.getElementById(matchMedia("(min-width: 64rem)").matches ? "trace" : "question").scrollIntoView({ block: "start" });
    });
    return this.looking;
  }
  // Of each panel, the slices that show what is right.
  lit() {
    const own = this.data.lights[0];
    return own ? this.report.timeline.light(own).map((ids) => new Set(ids)) : this.report.panels.map(() => new Set());
  }
  mark() {
    const { timeline } = this.report,
      { white } = timeline;
    if (white) {
      this.markWhite(white);
      return;
    }
    const [panel, slice] = timeline.selected,
      number = this.report.panels.indexOf(panel),
      found = this.lit()[number],
      total = [...found].reduce((sum, i) => sum + (panel.isInside(i) ? 0 : panel.duration[i]), 0),
      middle = (panel.start[slice] + panel.end[slice]) / 2 - panel.shift,
      kind = panel.categories[panel.category[slice]][0],
      inSpan = // a stretch is one of waiting for another rank, in a collective, or one of what the late rank does meanwhile
        ((number === this.data.late && !NO_WORK.has(kind)) ||
          ["communication", "waiting"].includes(kind) ||
          COLLECTIVE.test(panel.names[panel.name[slice]])) &&
        timeline.spans.some(([k, from, to]) => k === number && from <= middle && middle <= to);
    timeline.light(null);
    const names = new Set([...found].map((i) => panel.name[i])); // another of the same name shows it as well
    // An op around what shows it shows it, too, and others of its name; a step is around everything.
    const same = (i) => panel.name[i] === panel.name[slice] && panel.categories[panel.category[i]][0] === "op",
      isIn = (i, k) => panel.track[i] === panel.track[k] && panel.start[k] <= panel.start[i] && panel.end[i] <= panel.end[k],
      alike = [...Array(panel.n).keys()].filter(same),
      around = !names.has(panel.name[slice]) && alike.some((k) => [...found].some((i) => isIn(i, k))),
      part = [...found].some((i) => i !== slice && isIn(slice, i)), // an op that it calls
      named = this.data.names.some((own) => panel.called(slice).includes(own)), // of whichever rank
      hit = names.has(panel.name[slice]) || inSpan || around || part || named;
    const many = around
      ? "what shows it is in it"
      : part && !names.has(panel.name[slice])
        ? "it is part of what shows it"
        : found.size > 1
          ? `it is one of ${found.size.toLocaleString("en")} that do, ${duration(total)} together`
          : `it does, in ${duration(total)}`;
    const meanwhile = number === this.data.late ? "it is what the late rank does meanwhile" : "it is where this rank waits",
      ofJob = inSpan ? meanwhile : `it takes ${duration(panel.duration[slice])}`;
    this.marked(hit, hit ? (found.size ? many : ofJob) : this.why(panel, slice, found));
  }
  // What a mark comes to, in words. It answers a question for one, at the second try at last.
  marked(hit, words) {
    const told = document.getElementById("marked"),
      own = this.guesses[this.asked],
      isAnswer = this.question.mark && !this.isClosed;
    if (isAnswer) own.push(hit ? this.question.right : words);
    told.textContent = hit ? `Yes: ${words}.` : `Not this one: ${words}. Look again, or read why.`;
    if (!isAnswer || (!hit && own.length === 1)) return;
    const second = own.length > 1 ? ", the second time" : "";
    this.said.textContent = hit ? `Right${second}: ${words}.` : `Not this one: ${words}. It is this: ${this.question.right}.`;
    this.goOn();
  }
  // White space shows it where that is what shows it: the time in which no work is on a lane of the CPU, or of the GPU.
  markWhite({ panel, lane, from, to }) {
    const number = this.report.panels.indexOf(panel),
      found = this.lit()[number],
      own = this.report.timeline.spans.filter(([k]) => k === number),
      middle = (from + to) / 2 - panel.shift,
      total = own.reduce((sum, [, start, end]) => sum + end - start, 0);
    this.report.timeline.light(null);
    const here = `no op, call or kernel is on the lane “${lane.label}” for ${duration(to - from)}`,
      // Another on such a lane, of another step, shows it as well where it is as long.
      shortest = Math.min(...own.map(([, start, end]) => end - start)),
      isInOne = own.some(([, start, end]) => start <= middle && middle <= end),
      hit = this.data.white === (lane.gpu ? "gpu" : "cpu") && own.length > 0 && (isInOne || to - from >= shortest),
      waits = lane.gpu && this.data.white === "cpu" ? "; so the GPU waits, and its lane does not say for what" : "",
      elsewhere = waits || (found.size ? "; what shows it is a slice" : "");
    const stretches = `one of ${own.length.toLocaleString("en")} such stretches, ${duration(total)} together`;
    this.marked(hit, hit ? `${here}, ${stretches}` : `${here}${elsewhere}`);
  }
  // What the recording has of a slice that does not show it, and on which lane something does.
  why(panel, slice, found) {
    const same = (i) => panel.called(i) === panel.called(slice) && panel.track[i] === panel.track[slice];
    const ids = [...Array(panel.n).keys()].filter(same),
      total = ids.reduce((sum, i) => sum + panel.duration[i], 0),
      name = panel.called(slice),
      many = ids.length > 1 ? `${ids.length.toLocaleString("en")} × ${name} take` : `${name} takes`;
    const lanes = [...new Set([...found].map((i) => panel.laneOf(i)))],
      other = lanes.includes(panel.laneOf(slice)) ? undefined : lanes.find((one) => one.gpu) || lanes[0],
      lane = other ? `; what shows it is on the lane “${other.label}”` : "";
    return `${many} ${duration(total)}${lane}`;
  }
  async explain() {
    const { questions, exercise } = this.data;
    if (!this.explained) {
      this.explained = true;
      // How the hardest question was met: at the first guess, at the second, or not. One that was skipped is none that was missed.
      const each = questions.map((question, n) => this.guesses[n].findIndex((own) => judge(question, String(own)) === true) + 1),
        asked = each.filter((_, n) => this.guesses[n].length),
        hits = asked.filter((at) => at > 0).length,
        right = !asked.length || hits < asked.length ? 0 : Math.max(...asked);
      remember(exercise, { right, guesses: this.guesses, skipped: questions.length - asked.length });
      const met = ["Not this time.", "Right.", "Right, the second time."],
        counted = `${hits} of ${questions.length} right${asked.length < questions.length ? `, ${questions.length - asked.length} skipped` : ""}.`;
      this.said.textContent = !asked.length ? "" : questions.length > 1 ? counted : met[right];
    }
    await this.look();
    this.stage(2);
    this.close();
    const answer = document.getElementById("answer");
    answer.hidden = false;
    document.getElementById("explain").hidden = true;
    this.showMarking();
    const scales = questions.flatMap((own, n) => (own.options.length || own.mark ? [] : [scale(own, this.guesses[n])]));
    document.getElementById("scale").replaceChildren(...scales);
    if (this.report) {
      if (this.data.lights.length) this.report.keep(document.querySelector("button.lights"), this.data.lights[0]);
      this.report.timeline.everything(); // the highlighted slices with everything around them
    }
    answer.scrollIntoView({ block: "nearest" });
    answer.focus({ preventScroll: true }); // the button that had it is gone
  }
  // Some browsers give no clipboard to pages opened from a file: then the text is selected instead.
  async copy(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      document.getElementById("copy").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
    }
  }

  // ---- a trace of one's own

  takesTraces(drop, field) {
    for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
    drop.addEventListener("dragover", () => drop.classList.add("over"));
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      drop.classList.remove("over");
      if (event.dataTransfer.files[0]) this.compare(event.dataTransfer.files[0]);
    });
    field.addEventListener("change", (event) => event.target.files[0] && this.compare(event.target.files[0]));
  }
  async compare(file) {
    const told = document.getElementById("dropped"),
      recorded = this.report.recorded || (this.report.recorded = this.report.panels.at(-1));
    try {
      const own = await readOwn(file, recorded);
      const times = fitted(own, recorded);
      this.report.show([recorded, own]);
      const slices = `${own.n.toLocaleString("en")} slices`;
      const cut = own.cutOff ? " It is cut off: its whole events are shown." : "";
      const drawn =
        times === 1 ? "" : ` It is drawn ${times.toPrecision(2)} times as wide, so that its steps fit; its times are its own.`;
      told.textContent = `${file.name}: ${slices}, drawn below the recording, both from their first step on.${drawn}${cut}`;
      document.getElementById("compared").replaceChildren(compared(recorded, own));
    } catch (error) {
      told.textContent = `${file.name}: ${error.message}`;
      document.getElementById("compared").replaceChildren();
      if (this.report.panels.length > 1) this.report.show([recorded]);
    }
  }
}

function begin() {
  if (document.getElementById("continue")) {
    window.course = new Start();
    document.documentElement.dataset.ready = "true";
  }
  if (document.getElementById("guess")) {
    window.exercise = new Exercise(JSON.parse(document.getElementById("data").textContent));
    document.documentElement.dataset.asked = "true";
  }
}
begin();
