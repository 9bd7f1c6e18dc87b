// The course: it asks for a guess before it shows the answer, keeps the progress in the browser, and compares a trace of your
// own with the recording.

const PROGRESS = "profiling-in-pytorch";

function progress() {
  try {
    return JSON.parse(localStorage.getItem(PROGRESS)) || {};
  } catch {
    return {};
  }
}

function remember(exercise, state) {
  const known = progress();
  if (known[exercise]) return; // the first guess is the one that counts
  try {
    localStorage.setItem(PROGRESS, JSON.stringify({ ...known, [exercise]: state }));
  } catch {
    // a browser without storage: the course works all the same
  }
}

function showProgress() {
  const known = progress(),
    links = [...document.querySelectorAll("a[data-exercise]")];
  let right = 0,
    seen = 0;
  for (const link of links) {
    const state = known[link.dataset.exercise];
    link.nextElementSibling.textContent = state === "right" ? "✓ right" : state ? "seen" : "";
    right += state === "right" ? 1 : 0;
    seen += state ? 1 : 0;
  }
  document.getElementById("progress").textContent = `${seen} of ${links.length} exercises seen, ${right} guessed right`;
}

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

// Whether a guess is right; null if it names none of the options, or more than one, or is no single number.
function judge(check, typed) {
  const text = typed.trim().toLowerCase();
  if (check.options.length) {
    const said = check.options.filter((option) => new RegExp(`(^|[^a-z0-9-])${option.toLowerCase()}([^a-z0-9-]|$)`).test(text));
    return said.length === 1 ? said[0] === check.right : null;
  }
  const numbers = text.replaceAll(/(?<=\d)[, ](?=\d{3}(?!\d))/g, "").match(/-?(\d+\.?\d*|\.\d+)(e\d+)?k?(?![\w.])/g) || [];
  const values = numbers.length
    ? numbers.map((own) => parseFloat(own) * (own.endsWith("k") ? 1000 : 1))
    : text in WORDS
      ? [WORDS[text]]
      : [];
  if (values.length !== 1) return null;
  const [value] = values;
  return Math.abs(value - check.right) <= check.within * Math.abs(check.right) + 1e-9;
}

class Exercise {
  constructor(data) {
    this.data = data;
    const get = (id) => document.getElementById(id);
    this.said = get("said");
    get("guess").addEventListener("submit", (event) => {
      event.preventDefault();
      this.guess(get("typed").value);
    });
    get("tell").addEventListener("click", () => this.answer("seen"));
    get("copy").addEventListener("click", () => this.copy(get("command")));
    const drop = get("drop");
    if (!drop) return;
    for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
    drop.addEventListener("dragover", () => drop.classList.add("over"));
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      drop.classList.remove("over");
      if (event.dataTransfer.files[0]) this.compare(event.dataTransfer.files[0]);
    });
    get("file").addEventListener("change", (event) => event.target.files[0] && this.compare(event.target.files[0]));
  }
  guess(typed) {
    const { check } = this.data,
      right = judge(check, typed);
    if (right === null) {
      this.said.textContent = check.options.length
        ? `Say one of: ${check.options.join(", ")}.`
        : "Type one number, without a unit.";
      return;
    }
    const what = check.options.length ? check.right : check.right.toLocaleString("en");
    this.said.textContent = right ? "Right." : `Not this time: ${what}.`;
    this.answer(right ? "right" : "wrong");
  }
  async answer(state) {
    remember(this.data.exercise, state);
    document.getElementById("answer").hidden = false;
    if (!this.report) {
      this.report = true;
      await start();
      this.report = window.report;
    }
    if (this.data.lights.length) this.report.keep(document.querySelector("button.lights"), this.data.lights[0]);
    this.report.timeline.everything(); // the highlighted slices with everything around them
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
  async compare(file) {
    const told = document.getElementById("dropped"),
      recorded = this.report.recorded || (this.report.recorded = this.report.panels.at(-1));
    try {
      const own = await readOwn(file, recorded);
      this.report.show([recorded, own]);
      const slices = `${own.n.toLocaleString("en")} slices`;
      const cut = own.cutOff ? " It is cut off: its whole events are shown." : "";
      told.textContent = `${file.name}: ${slices}, drawn below the recording, both from their first step on.${cut}`;
      document.getElementById("compared").replaceChildren(compared(recorded, own));
    } catch (error) {
      told.textContent = `${file.name}: ${error.message}`;
      document.getElementById("compared").replaceChildren();
      if (this.report.panels.length > 1) this.report.show([recorded]);
    }
  }
}

// ---- one's own trace

const KINDS = {
  __proto__: null, // a category may have any name
  cpu_op: "op",
  user_annotation: "annotation",
  cuda_runtime: "call",
  cuda_driver: "call",
  xpu_runtime: "call",
  overhead: "profiler",
  python_function: "Python",
  kernel: "kernel",
  gpu_memcpy: "copy",
  gpu_memset: "copy",
  gpu_user_annotation: "GPU annotation",
};
const GPU = new Set(["kernel", "copy", "GPU annotation"]);

async function readOwn(file, recorded) {
  let bytes = await file.arrayBuffer();
  if (/\.html?$/i.test(file.name)) {
    const text = new TextDecoder().decode(bytes),
      block = (start) => text.split(start)[1]?.split("</" + "script>")[0]; // whole, it would end this script
    const opens = (kind) => `<${"script"} type="${kind}"`;
    const data = block(`${opens("application/json")} id="data">`),
      columns = block(`${opens("text/plain")} class="columns">`);
    if (!data || !columns) throw new Error("no page of --html");
    const head = JSON.parse(data).panels[0];
    head.shift = head.steps.length ? -head.steps[0][1] : head.shift;
    return new Panel({ ...head, folded: false }, unpack(head.columns, await inflate(columns)));
  }
  let cutOff = false;
  if (new Uint8Array(bytes)[0] === 0x1f) ({ bytes, cutOff } = await unzipped(bytes));
  const trace = parsed(new TextDecoder().decode(bytes));
  const events = Array.isArray(trace) ? trace : trace?.traceEvents;
  if (!Array.isArray(events)) throw new Error("no trace: there is no list traceEvents in it");
  const panel = panelOf(events, file.name, recorded);
  panel.cutOff = cutOff || trace.cutOff;
  return panel;
}

// The bytes in a gzip file, and whether it ends too early: then those that came out of it.
async function unzipped(zipped) {
  const reader = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let cutOff = false;
  try {
    for (let part; !(part = await reader.read()).done; ) parts.push(part.value);
  } catch {
    cutOff = true;
  }
  return { bytes: await new Blob(parts).arrayBuffer(), cutOff };
}

// The trace in a text; of one that is cut off, the events that are whole.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    const ends = [...text.matchAll(/\}(?=\s*,\s*\{[^{}]*?"ph")/g)];
    const end = ends.at(-1)?.index + 1;
    try {
      return Object.assign(JSON.parse(text.slice(0, end) + (/^\s*\[/.test(text) ? "]" : "]}")), { cutOff: true });
    } catch {
      throw new Error("no trace: this is not JSON");
    }
  }
}

// A panel of the events of a trace, without the reader: lanes, nesting, launches, and colours as far as the recording knows the
// names.
function panelOf(events, title, recorded) {
  const known = new Map();
  recorded.names.forEach((name, i) => known.set(name, recorded.labels[i]));
  const kindOf = new Map();
  for (let i = 0; i < recorded.n; i++) kindOf.set(recorded.names[recorded.name[i]], recorded.category[i]);
  const slices = [];
  for (const event of events) {
    const kind = KINDS[event?.cat];
    if (
      event?.ph !== "X" ||
      !kind ||
      !Number.isFinite(+event.ts) ||
      !Number.isFinite(+event.dur) ||
      typeof event.name !== "string"
    )
      continue;
    const gpu = GPU.has(kind),
      args = event.args || {};
    const track = gpu ? `GPU stream ${args.stream ?? event.tid}` : `thread ${event.tid}`;
    slices.push({
      kind,
      gpu,
      track,
      name: event.name,
      start: +event.ts * 1000,
      duration: +event.dur * 1000,
      correlation: args.correlation,
    });
  }
  if (!slices.length) throw new Error("no slices in it");
  slices.sort((a, b) => a.start - b.start || b.duration - a.duration);
  const zero = slices[0].start,
    names = new Map(),
    tracks = new Map(),
    n = slices.length;
  const number = (map, key) => map.get(key) ?? (map.set(key, map.size), map.size - 1);
  const columns = {
    start: new Float64Array(n),
    duration: new Float64Array(n),
    name: new Int32Array(n),
    track: new Int32Array(n),
    category: new Uint8Array(n),
    parent: new Int32Array(n).fill(-1),
    call: new Int32Array(n).fill(-1),
    detail: new Int32Array(n),
  };
  const calls = new Map(),
    open = new Map(),
    steps = [],
    categoryOf = (name) => recorded.categories.findIndex(([own]) => own === name);
  let before = 0;
  slices.forEach((own, i) => {
    const start = Math.round(own.start - zero);
    columns.start[i] = start - before;
    before = start;
    columns.duration[i] = Math.round(own.duration);
    columns.name[i] = number(names, own.name);
    columns.track[i] = number(tracks, own.track);
    const step = own.kind === "annotation" && /^ProfilerStep#\d+$/.test(own.name);
    if (step) steps.push([own.name, start, start + columns.duration[i]]);
    const kind = step ? "step" : own.kind === "call" && own.name.includes("Synchronize") ? "waiting" : own.kind;
    columns.category[i] = own.kind === "kernel" ? (kindOf.get(own.name) ?? categoryOf("other")) : categoryOf(kind);
    if (own.kind === "call" && own.correlation !== undefined) calls.set(own.correlation, i);
    if (own.gpu) return;
    const stack = open.get(own.track) || [];
    while (stack.length && stack.at(-1)[1] <= start) stack.pop();
    columns.parent[i] = stack.length ? stack.at(-1)[0] : -1;
    if (own.kind !== "call") stack.push([i, start + columns.duration[i]]);
    open.set(own.track, stack);
  });
  slices.forEach((own, i) => {
    if (own.gpu && own.kind !== "GPU annotation") columns.call[i] = calls.get(own.correlation) ?? -1;
  });
  const lanes = [...tracks]
    .map(([label, track]) => ({ label, track, gpu: label.startsWith("GPU") }))
    .sort((a, b) => a.gpu - b.gpu);
  const labels = {};
  for (const [name, i] of names) if (known.get(name)) labels[i] = known.get(name);
  const head = {
    label: title,
    n,
    shift: steps.length ? -steps[0][1] : 0,
    from: "the first recorded step",
    tolerance: 2,
    names: [...names.keys()],
    labels,
    details: [""],
    lanes,
    bands: [],
    curves: [],
    steps,
    path: null,
    categories: recorded.categories,
  };
  return new Panel(head, columns);
}

// The GPU work that both traces have, by name: how many calls, and their mean duration.
function compared(recorded, own) {
  const sums = [recorded, own].map((panel) => {
    const found = new Map();
    for (let i = 0; i < panel.n; i++) {
      if (!panel.isGpu(i)) continue;
      const name = panel.names[panel.name[i]],
        sum = found.get(name) || { label: panel.called(i), calls: 0, total: 0 };
      sum.calls++;
      sum.total += panel.duration[i];
      found.set(name, sum);
    }
    return found;
  });
  const both = [...sums[0]]
    .filter(([name]) => sums[1].has(name))
    .sort(([, a], [, b]) => b.total - a.total)
    .slice(0, 20);
  if (!both.length) return element("p", "The two traces have no kernel name in common.");
  const table = element("table"),
    head = table.createTHead().insertRow();
  for (const text of ["kernel", "recorded", "yours"]) head.append(element("th", text, { scope: "col" }));
  const body = table.createTBody(),
    mean = (sum) => `${sum.calls} x ${duration(sum.total / sum.calls)}`;
  for (const [name, sum] of both) {
    const row = body.insertRow();
    row.append(element("th", sum.label, { scope: "row" }), element("td", mean(sum)), element("td", mean(sums[1].get(name))));
  }
  return table;
}

if (document.getElementById("progress")) {
  showProgress();
  addEventListener("pageshow", showProgress);
  document.documentElement.dataset.ready = "true";
}
if (document.getElementById("guess")) {
  window.exercise = new Exercise(JSON.parse(document.getElementById("data").textContent));
  document.documentElement.dataset.asked = "true";
}
