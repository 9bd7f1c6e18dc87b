// A trace of one's own beside the recording of an exercise: read in the browser, drawn to its own scale, compared by kernel.

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

const ALIKE = 1.5;

// Draws a trace to a scale of its own where its steps are much longer or shorter than the recording's; by which factor.
function fitted(own, recorded) {
  const long = (panel) => (panel.steps.length ? panel.steps.at(-1)[2] - panel.steps[0][1] : panel.last - panel.first);
  const times = long(recorded) / long(own);
  if (!(times > 0) || !Number.isFinite(times) || (times < ALIKE && times > 1 / ALIKE)) return 1;
  own.stretch(times);
  return times;
}
