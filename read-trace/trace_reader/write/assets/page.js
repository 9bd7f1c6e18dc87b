"use strict";
// The page around the timeline: what is selected, findings and table rows that light up, search, sorting.

const MOST_LISTED = 200,
  REST_MS = 200;

function element(tag, text, more = {}) {
  return Object.assign(document.createElement(tag), text === undefined ? {} : { textContent: text }, more);
}

async function readPanels(data, blocks) {
  const panels = [];
  for (const [i, head] of data.panels.entries())
    panels.push(new Panel(head, unpack(head.columns, await inflate(blocks[i].textContent))));
  return panels;
}

class Report {
  constructor(panels, lights) {
    const get = (id) => document.getElementById(id);
    this.panels = panels;
    this.lights = lights;
    this.kept = null; // the button whose slices stay lit
    this.details = get("details");
    this.nothing = [...this.details.children].slice(1);
    this.timeline = new Timeline(
      panels,
      { canvas: get("lanes"), scroll: get("scroll"), height: get("height"), tip: get("tip") },
      (panel, i, measured) => {
        this.told(panel, i, measured);
        this.onSelect?.(this.timeline.selected?.[1]); // a measured stretch leaves it selected
      },
    );
    get("nearer").addEventListener("click", () => this.timeline.zoom(0.5));
    get("farther").addEventListener("click", () => this.timeline.zoom(2));
    get("all").addEventListener("click", () => this.timeline.everything());
    get("clear").addEventListener("click", () => this.clear());
    get("path-label").hidden = !panels.some((panel) => panel.path);
    get("path").addEventListener("change", (event) => this.path(event.target.checked));
    this.hasPlain = panels.some((panel) => panel.columns.recorded_start);
    get("plain").addEventListener("change", (event) => {
      this.timeline.recorded = !event.target.checked;
      this.path(true);
    });
    this.found = get("found");
    this.search = get("search");
    this.next = get("next");
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.clear();
    });
    this.next.addEventListener("click", () => this.go(1));
    document.addEventListener("keydown", (event) => {
      if (isTyped(event)) return;
      if (event.key === "/") {
        event.preventDefault();
        this.search.focus();
      }
      if (event.key === "Escape") {
        for (const help of document.querySelectorAll("details.help")) help.open = false;
        this.clear();
      }
      if (event.key.toLowerCase() === "p" && !get("path-label").hidden) this.path(!this.timeline.showPath);
    });
    const unfold = () => {
      for (const own of document.querySelectorAll(".tables details, .findings details")) own.open = true;
    };
    get("unfold")?.addEventListener("click", unfold);
    addEventListener("beforeprint", unfold);
    this.inView = get("in-view");
    this.inView.addEventListener("toggle", () => this.listed());
    this.timeline.onDraw = () => this.inView.open && this.listed();
    this.timeline.onFold = () => this.legend(get("legend"));
    for (const button of document.querySelectorAll("button.lights, g.lights")) this.wire(button);
    for (const button of document.querySelectorAll("button.sort")) button.addEventListener("click", () => sort(button));
    this.legend(get("legend"));
  }
  // Other traces in the place of these.
  show(panels) {
    this.panels = panels;
    this.clear();
    this.timeline.replace(panels);
    this.legend(document.getElementById("legend"));
  }
  path(shown) {
    if (shown && this.timeline.folded.size === this.panels.length) this.timeline.toggle();
    this.timeline.showPath = document.getElementById("path").checked = shown;
    document.getElementById("plain-label").hidden = !shown || !this.hasPlain; // which run's path it is
    this.timeline.draw();
  }
  legend(place) {
    place.replaceChildren();
    const used = new Map();
    for (const panel of this.panels) {
      const there = new Uint8Array(panel.categories.length);
      if (!this.timeline.folded.has(panel)) for (let i = 0; i < panel.n; i++) there[panel.category[i]] = 1;
      panel.categories.forEach(([name, colour], k) => there[k] && used.set(name, colour));
      for (const band of panel.bands)
        for (const half of band.halves)
          for (const text of new Set(half.ids)) {
            const [said, name] = band.texts[text];
            used.set(
              name === "idle" ? "idle" : said,
              name === "idle" ? this.timeline.idle : panel.categories[panel.categoryOf[name]][1],
            );
          }
    }
    for (const [name, colour] of used) {
      const item = element("span"),
        box = element("i");
      box.style.backgroundColor = colour;
      if (name.startsWith("waiting")) box.className = "hatched";
      item.append(box, name);
      place.append(item);
    }
  }

  // ---- lighting

  wire(button) {
    const row = button.closest("tr") || button,
      own = this.lights[button.dataset.light];
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const again = this.kept === button;
      this.clear();
      if (again) return;
      this.keep(button, own);
      document.querySelector(".timeline").scrollIntoView({ block: "nearest" });
    });
    if (button.localName === "g") {
      // A dot of the roofline.
      button.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        button.dispatchEvent(new MouseEvent("click"));
      });
    }
    if (row !== button) {
      row.addEventListener("pointerenter", () => this.timeline.light(own));
      row.addEventListener("pointerleave", () =>
        this.timeline.light(this.kept ? this.lights[this.kept.dataset.light] : this.asked || null),
      );
    }
  }
  keep(button, own) {
    this.kept = button;
    button?.setAttribute("aria-pressed", "true"); // an exercise of a job has none
    this.showLit(own);
  }
  // Light these slices and zoom to them.
  showLit(own) {
    const found = this.timeline.light(own);
    let from = Infinity,
      to = -Infinity,
      first = null;
    found.forEach((ids, k) => {
      for (const i of ids) {
        first ??= [this.panels[k], i];
        from = Math.min(from, this.panels[k].start[i]);
        to = Math.max(to, this.panels[k].end[i]);
      }
    });
    for (const [k, start, end] of this.timeline.spans) {
      from = Math.min(from, start + this.panels[k].shift);
      to = Math.max(to, end + this.panels[k].shift);
    }
    found.forEach((ids, k) => ids.length && this.timeline.folded.delete(this.panels[k]) && this.timeline.resize());
    if (to >= from) this.timeline.show(from - (to - from) * 0.1 - 100, to + (to - from) * 0.1 + 100);
    if (first) this.timeline.reveal(...first);
    const n = found.reduce((sum, ids) => sum + ids.length, 0);
    const counted = (n, one, many) => (n ? [`${n.toLocaleString("en")} ${n > 1 ? many : one}`] : []),
      lit = [...counted(n, "slice", "slices"), ...counted(this.timeline.spans.length, "stretch of time", "stretches of time")];
    this.found.textContent = lit.length ? `${lit.join(", ")} lit` : "";
  }
  clear() {
    this.kept?.setAttribute("aria-pressed", "false");
    this.kept = this.asked = null;
    this.hits = [];
    this.search.value = "";
    this.found.textContent = "";
    this.next.disabled = true;
    this.timeline.measured = null;
    this.timeline.light(null);
    this.timeline.select(null);
  }

  // ---- search

  find() {
    const text = this.search.value
      .trim()
      .toLowerCase()
      .replace(/ #\d+$/, ""); // the tables number labels that are alike
    this.kept?.setAttribute("aria-pressed", "false");
    this.kept = this.asked = null;
    this.hits = [];
    this.hit = -1;
    this.next.disabled = true;
    if (!text) {
      this.found.textContent = "";
      this.timeline.light(null);
      return;
    }
    const names = {};
    this.panels.forEach((panel, k) => {
      names[k] = panel.lower.flatMap((own, i) => (own.includes(text) ? [i] : []));
    });
    this.asked = { names };
    const totals = { CPU: 0, GPU: 0 };
    this.timeline.light(this.asked).forEach((ids, k) => {
      const panel = this.panels[k];
      for (const i of ids) {
        this.hits.push([panel, i]);
        if (!panel.isInside(i)) totals[panel.laneOf(i).gpu ? "GPU" : "CPU"] += panel.duration[i];
      }
    });
    const n = this.hits.length,
      said = Object.entries(totals)
        .filter(([, total]) => total)
        .map(([where, total]) => `${where} ${duration(total)}`);
    this.counted = `${n.toLocaleString("en")} slice${n > 1 ? "s" : ""}${said.length ? `: ${said.join(", ")}` : ""}`;
    this.found.textContent = n ? this.counted : "nothing has this in its name";
    this.next.disabled = !n;
  }
  go(by) {
    if (!this.hits?.length) return;
    this.hit = this.hit < 0 && by < 0 ? this.hits.length - 1 : (this.hit + by + this.hits.length) % this.hits.length;
    this.found.textContent = `${(this.hit + 1).toLocaleString("en")} of ${this.counted}`;
    const [panel, i] = this.hits[this.hit],
      long = Math.max(panel.duration[i] * 20, 1000);
    if (panel.duration[i] / (this.timeline.t1 - this.timeline.t0) < 0.01)
      this.timeline.show(panel.start[i] - long / 2, panel.start[i] + long / 2);
    this.timeline.select(panel, i);
  }

  // ---- what is in view, for those who do not see the drawing

  // The longest slices in view, in their order; again when the view has moved and come to rest.
  listed() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      const { t0, t1 } = this.timeline,
        found = [];
      for (const panel of this.panels)
        for (let i = 0; i < panel.n; i++)
          if (panel.end[i] >= t0 && panel.start[i] <= t1 && !this.timeline.folded.has(panel)) found.push([panel, i]);
      const shown = found
        .sort(([a, i], [b, k]) => b.duration[k] - a.duration[i])
        .slice(0, MOST_LISTED)
        .sort(([a, i], [b, k]) => a.start[i] - b.start[k]);
      const table = element("table"),
        head = table.createTHead().insertRow(),
        body = table.createTBody();
      for (const text of ["slice", "kind", "on", "start", "duration"]) head.append(element("th", text, { scope: "col" }));
      for (const [panel, i] of shown) {
        const row = body.insertRow(),
          name = element("th", undefined, { scope: "row" }),
          button = element("button", panel.called(i) || "(no name)", { type: "button" });
        button.addEventListener("click", () => this.timeline.select(panel, i));
        name.append(button);
        row.append(name);
        const [kind] = panel.categories[panel.category[i]],
          cells = [kind, panel.laneOf(i).label, startOf(panel, i), duration(panel.duration[i])];
        for (const text of cells) row.append(element("td", text));
      }
      const left = found.length - shown.length,
        more = left ? [element("p", `and ${left.toLocaleString("en")} shorter ones: zoom in`)] : [];
      this.inView.querySelector("div").replaceChildren(table, ...more);
    }, REST_MS);
  }

  // ---- what is selected

  told(panel, i, measured) {
    this.details.replaceChildren(element("h2", "Selected"));
    if (measured) {
      this.measured(measured);
      return;
    }
    if (!panel) {
      this.details.append(...this.nothing);
      return;
    }
    const list = element("dl");
    for (const [what, value] of describe(panel, i)) {
      if (!what) this.details.append(element("p", value, { className: "name" }));
      else list.append(element("dt", what), element("dd", value));
    }
    for (const [other, k] of this.timeline.pairs(panel, i))
      list.append(element("dt", "the same in the other"), element("dd", `${duration(other.duration[k])} (${other.label})`));
    this.details.append(list);
    const chain = panel.chain(i);
    if (chain.length > 1) {
      this.details.append(element("h3", "From the outside in"));
      this.details.append(this.slices(panel, chain, i));
    }
    const launched = panel.launched.get(i) || [];
    if (launched.length) {
      this.details.append(element("h3", "Launched"));
      this.details.append(this.slices(panel, launched.slice(0, 20), i));
      if (launched.length > 20) this.details.append(element("p", `and ${launched.length - 20} more`));
    }
  }
  slices(panel, ids, current) {
    const list = element("ol", undefined, { className: "chain" });
    for (const k of ids) {
      const item = element("li"),
        button = element("button", `${panel.called(k)}  ${duration(panel.duration[k])}`, { type: "button" });
      if (k === current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => this.timeline.select(panel, k));
      item.append(button);
      list.append(item);
    }
    return list;
  }
  measured([from, to]) {
    const list = element("dl"),
      { white } = this.timeline;
    if (white) list.append(element("dt", "no op, call or kernel"), element("dd", `on ${white.lane.label}`));
    list.append(element("dt", "measured"), element("dd", duration(to - from)));
    for (const panel of this.panels) {
      const where = this.panels.length > 1 ? ` in ${panel.label}` : "";
      for (const lane of panel.lanes) {
        let n = 0,
          busy = 0;
        lane.rows.forEach((row, level) => {
          n += Math.max(0, place(row.start, to) - place(row.start, from));
          if (level === 0 || lane.gpu) busy += level >= lane.notes ? row.within(from, to) / panel.drawn : 0;
        });
        const what = lane.gpu ? "busy" : "something open";
        const said = `${what} ${duration(busy)}; ${n.toLocaleString("en")} slice${n === 1 ? "" : "s"} begin`;
        if (n || busy) list.append(element("dt", lane.label + where), element("dd", said));
      }
    }
    this.details.append(list);
  }
}

// Changes to tick, and a step's time: as recorded, without the profiler, and with what is ticked.
class Changes {
  constructor(data) {
    this.data = data;
    this.bars = document.getElementById("bars");
    this.said = document.getElementById("changed");
    this.boxes = [...document.querySelectorAll("input.change")];
    for (const box of this.boxes) box.addEventListener("change", () => this.draw());
    this.draw();
  }
  draw() {
    const { recorded, plain, gains, least } = this.data,
      chosen = this.boxes.reduce((bits, box) => bits + (box.checked ? 1 << Number(box.value) : 0), 0),
      [low, high] = gains[chosen],
      // No shorter than what its GPUs have to do.
      changed = [
        Math.max(plain[0] * (1 - high), Math.min(least[chosen], plain[0])),
        Math.max(plain[1] * (1 - low), Math.min(least[chosen], plain[1])),
      ],
      most = Math.max(recorded || 0, plain[1]);
    const rows = [["without the profiler", plain]];
    if (recorded) rows.unshift(["recorded", [recorded, recorded]]);
    rows.push(["changed", changed]);
    this.bars.replaceChildren(...(chosen ? rows.map(([name, [from, to]]) => this.row(name, from, to, most)) : []));
    const percent = (share) => `${Math.round(share * 100)}%`;
    const saved =
      low < 0.005
        ? `up to ${percent(high)}`
        : percent(low) === percent(high)
          ? percent(high)
          : `${percent(low)} to ${percent(high)}`;
    this.said.textContent = chosen ? `These changes together save ${high < 0.005 ? "nothing" : saved} of a step.` : "";
  }
  row(name, from, to, most) {
    const row = element("div", undefined, { className: "step" }),
      bar = element("span", undefined, { className: "length" }),
      sure = element("i"),
      perhaps = element("i", undefined, { className: "perhaps" });
    sure.style.width = `${(100 * from) / most}%`;
    perhaps.style.width = `${(100 * (to - from)) / most}%`;
    bar.append(sure, perhaps);
    const [least, longest] = [duration(from * 1000), duration(to * 1000)];
    row.append(element("span", name), bar, element("span", least === longest ? least : `${least} to ${longest}`));
    return row;
  }
}

const UNITS = { us: 1, ms: 1e3, s: 1e6, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, "%": 1 };
const NOT_KNOWN = /^(unknown|none|not estimated|-|)$/;

// A cell as a number, its unit counted in; NaN for a word.
function number(text) {
  const found = /^([+-]?[\d,]*\.?\d+)\s*([%\w]+)?([ ,(x/].*)?$/.exec(text);
  if (!found || (found[2] && !Object.hasOwn(UNITS, found[2]))) return NaN;
  return parseFloat(found[1].replaceAll(",", "")) * (UNITS[found[2]] || 1);
}

// Whether keys are for a field to type in.
function isTyped(event) {
  return event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select");
}

function sort(button) {
  const head = button.closest("th"),
    column = head.cellIndex,
    table = head.closest("table"),
    body = table.tBodies[0];
  const before = head.getAttribute("aria-sort");
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...body.rows];
  rows.forEach((row, i) => (row.dataset.place ??= i)); // the report's own order, to which the third click goes back
  const numeric =
    rows.some((row) => !Number.isNaN(number(text(row)))) &&
    rows.every((row) => NOT_KNOWN.test(text(row)) || !Number.isNaN(number(text(row))));
  const order1 = numeric ? "descending" : "ascending",
    order2 = numeric ? "ascending" : "descending";
  const next = before === null ? order1 : before === order1 ? order2 : null,
    down = next === "descending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  if (next === null) {
    body.append(...rows.sort((a, b) => a.dataset.place - b.dataset.place));
    return;
  }
  head.setAttribute("aria-sort", next);
  const order = (a, b) => {
    const [x, y] = [number(text(a)), number(text(b))];
    if (!numeric) return text(b).localeCompare(text(a), "en");
    return Number.isNaN(x) ? (Number.isNaN(y) ? 0 : down ? 1 : -1) : Number.isNaN(y) ? (down ? -1 : 1) : y - x;
  };
  rows.sort((a, b) => (down ? order(a, b) : -order(a, b)));
  body.append(...rows);
}

async function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  try {
    window.report = new Report(await readPanels(data, document.querySelectorAll("script.columns")), data.lights || []);
  } catch (error) {
    document.getElementById("found").textContent = `The timeline cannot be drawn by this browser: ${error.message}`;
    throw error;
  }
  if (data.changes) window.changes = new Changes(data.changes);
  document.documentElement.dataset.ready = "true";
}
if (document.getElementById("lanes") && !document.getElementById("guess")) start(); // an exercise asks first
