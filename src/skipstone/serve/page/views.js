// The views below the funnel: files and reasons, layout of columns, snapshots, compaction.
import { clean, count, h, key, listKeys, percent, phrase, plural, share, size, table } from "./parts.js";

const STYLES = { sorted: "skst-kept", clustered: "skst-kept", constant: "skst-kept", overlapping: "skst-warn", random: "skst-bad" };
const FRESH = 10_000;
const PAGE = 50;

/** Put new content in place, and the focus where it was. */
function swap(panel, ...nodes) {
  const active = panel.contains(document.activeElement) ? document.activeElement : null;
  const name = active?.dataset.focus;
  const caret = active?.type === "search" ? active.selectionStart : null;
  panel.replaceChildren(...nodes.filter(Boolean));
  const next = name && [...panel.querySelectorAll("[data-focus]")].find((node) => node.dataset.focus === name);
  if (!next) return;
  next.focus();
  if (caret !== null) next.setSelectionRange(caret, caret);
}

const answers = new Map();
/** The last answer of each kind, if the question is the same and the answer is fresh. */
async function once(ask, path, body) {
  const question = JSON.stringify(body);
  const last = answers.get(path);
  if (last?.question === question && Date.now() - last.at < FRESH) return last.answer;
  const answer = await ask(path, body);
  answers.set(path, { question, answer, at: Date.now() });
  return answer;
}

/** Move among the buttons of a list with one tab stop. */
function roving(node, selector) {
  const items = () => [...node.querySelectorAll(selector)];
  items().forEach((one, at) => { one.tabIndex = at ? -1 : 0; });
  const chosen = node.querySelector(`${selector}[aria-expanded=true], [aria-current=true] ${selector}`);
  if (chosen) { items()[0].tabIndex = -1; chosen.tabIndex = 0; }
  node.addEventListener("keydown", listKeys(items, (one) => one.click()));
  return node;
}

// -- files -------------------------------------------------------------------------------------

const list = { name: "", question: "", match: "", start: 0 };

async function files(question) {
  const { state, scan, ask, panel, go, again } = question;
  const show = state.show || "kept";
  if (list.name !== state.name) Object.assign(list, { name: state.name, match: "" });
  const listed = JSON.stringify([scan, show]);
  if (list.question !== listed) Object.assign(list, { question: listed, start: 0 });
  const page = await once(ask, "api/files", { ...scan, show, match: list.match, start: list.start, count: PAGE });
  const dropped = page.of_files - page.kept;
  const choice = h("fieldset", { class: "choice" }, h("legend", { class: "unseen" }, "Files to list"),
    ...[["kept", "Tasks", page.kept], ["dropped", "Dropped", dropped], ["all", "All", page.of_files]].map(([value, title, n]) =>
      h("label", {}, h("input", { type: "radio", name: "show", value, checked: value === show, "data-focus": `show ${value}`,
        onchange: () => go({ show: value === "kept" ? "" : value, file: "" }) }), h("span", {}, `${title} `, h("span", { class: "n" }, count(n))))));
  const match = h("input", { type: "search", placeholder: "Find in paths", "aria-label": "Find in paths", "data-focus": "match", value: list.match, spellcheck: "false",
    oninput: (event) => { Object.assign(list, { match: event.target.value, start: 0 }); again(); } });
  const turn = (by) => () => { list.start += by; again(); };
  const stop = list.start + page.files.length;
  const pager = page.matched > PAGE && h("span", {},
    h("button", { type: "button", "data-focus": "back", disabled: list.start === 0, onclick: turn(-PAGE) }, "← Previous"), ` ${count(list.start + 1)}–${count(stop)} of ${count(page.matched)} `,
    h("button", { type: "button", "data-focus": "next", disabled: stop >= page.matched, onclick: turn(PAGE) }, "Next →"));
  const tell = show === "dropped" ? "" : page.residual ? ["Rows are tested with ", h("code", {}, page.residual)] : page.kept ? "Every row of the tasks is proven to match: none is tested." : "";
  const names = folder(page.files.map((file) => file.file));
  const partitioned = page.files.some((file) => Object.keys(file.partition).length);
  const rows = table([
    ["File", (file) => h("button", { type: "button", class: "link", "aria-expanded": file.file === state.file ? "true" : "false", "data-focus": file.file, title: `Why is ${file.file} ${file.kept ? "kept" : "dropped"}?`,
      onclick: () => go({ file: file.file === state.file ? "" : file.file }) }, h("code", { class: file.kept ? "" : "skst-dropped" }, file.file.slice(names.length))), "name"],
    ...(partitioned ? [["Partition", (file) => h("span", { class: "skst-clip" }, Object.entries(file.partition).map(([name, value]) => `${name}=${value ?? "NULL"}`).join(", "))]] : []),
    ["Rows", (file) => file.kept ? rowsOf(file) : h("span", { class: "skst-dropped" }, file.of_rows === null ? "none" : `none of ${count(file.of_rows)}`)],
    ["Proven", (file) => file.kept ? count(file.proven) : "", "skst-number"],
    ["Size", (file) => size(file.bytes), "skst-number"],
  ], page.files);
  const empty = !page.files.length && h("p", { class: "note" }, list.match ? "No path matches." : show === "kept" ? "Nothing is read: no file can hold a matching row." : "No file is dropped.");
  swap(panel, h("div", { class: "tools" }, choice, match, pager), tell && h("p", { class: "note" }, tell),
    names && page.files.length ? h("p", { class: "note" }, "below ", h("code", {}, names)) : null, empty || roving(rows, "button.link"));
  if (state.file) await reason(question);
}

/** The folder that all paths have in common. */
function folder(paths) {
  const [first, last] = [paths.reduce((a, b) => a < b ? a : b, paths[0] ?? ""), paths.reduce((a, b) => a > b ? a : b, "")];
  let same = 0;
  while (same < first.length && first[same] === last[same]) same += 1;
  return paths.length > 1 ? first.slice(0, first.lastIndexOf("/", same - 1) + 1) : first.slice(0, first.lastIndexOf("/") + 1);
}

function rowsOf(file) {
  const strip = h("span", { class: "strip", "aria-hidden": "true" });
  const ranges = file.more_ranges ? [...file.ranges, [file.ranges.at(-1)[1], file.of_rows]] : file.ranges;
  for (const [start, stop] of ranges) {
    const part = h("i", { class: file.proven === file.rows ? "all" : "", title: `rows ${count(start)} to ${count(stop - 1)}` });
    part.style.left = `${100 * start / file.of_rows}%`;
    part.style.width = `${100 * (stop - start) / file.of_rows}%`;
    strip.append(part);
  }
  const more = file.ranges.length + file.more_ranges;
  return h("div", {}, phrase(share(file.rows, file.of_rows), more > 1 && `${count(more)} ranges`), strip);
}

const VERDICTS = { NONE: ["dropped", "skst-bad"], SOME: ["kept", "skst-kept"], ALL: ["kept, every row matches", "skst-kept"] };
const FOLDED = 6;

async function reason({ state, scan, ask, panel, go }) {
  const button = [...panel.querySelectorAll("button.link")].find((one) => one.dataset.focus === state.file);
  const place = h("div", { class: "why", role: "region", "aria-label": "Why", "aria-live": "polite" }, h("p", { class: "note wait" }, "Looking at its statistics …"));
  const row = button?.closest("tr");
  if (row) {
    row.classList.add("open");
    row.after(h("tr", {}, h("td", { class: "full", colspan: row.children.length }, place)));
  } else panel.querySelector(".tools").after(place);
  const close = () => { go({ file: "" }); button?.focus(); };
  (row?.parentElement ?? place).addEventListener("keydown", key({ Escape: close }));
  let why;
  try {
    why = await once(ask, "api/why", { ...scan, file: state.file });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    place.replaceChildren(h("p", { class: "skst-bad", role: "alert" }, error.message));
    return;
  }
  place.classList.toggle("kept", why.kept);
  const levels = new Map();
  for (const step of why.steps) levels.set(step.level, [...(levels.get(step.level) ?? []), step]);
  swap(place,
    row ? null : h("p", { class: "skst-bold" }, why.file),
    ...[...levels].map(([name, steps]) => h("div", { class: "skst-row skst-plain" }, h("div", { class: "skst-name" }, name), h("div", {}, ...told(steps)))),
    h("div", { class: "end" }, why.conclusion),
    ...why.notes.map((note) => h("div", { class: "note" }, note)),
    why.more_steps ? h("div", { class: "note" }, `${count(why.more_steps)} more steps`) : null,
  );
}

function told(steps) {
  const line = (step) => {
    const [said, style] = VERDICTS[step.verdict];
    return h("div", { class: "unit" }, h("span", { class: style }, `${step.unit}: ${said}${step.cause ? ` by ${step.cause}` : ""}`),
      h("span", {}, step.condition ? h("code", {}, step.condition) : null, step.condition ? ": " : null, step.evidence));
  };
  const [first, rest] = [steps.slice(0, FOLDED), steps.slice(FOLDED)];
  return [...first.map(line), rest.length ? h("details", { class: "more" }, h("summary", {}, `${count(rest.length)} more`), ...rest.map(line)) : null];
}

// -- layout ------------------------------------------------------------------------------------

const SOURCES = { index: "the index", manifests: "manifests", footers: "footers" };

async function layout({ state, about, scan, ask, panel, go }) {
  const all = await once(ask, "api/layout", about);
  if (!all.columns.length) return swap(panel, h("p", { class: "note" }, "No column has an order: there are no bounds to draw."));
  const names = all.columns.map((column) => column.name);
  const chosen = state.column || names[0];
  const spans = await once(ask, "api/spans", { ...scan, column: chosen });
  const part = all.measured < all.files ? `${count(all.measured)} of ${plural(all.files, "file")}` : plural(all.files, "file");
  const open = (name) => () => go({ column: name });
  const overview = table([
    ["Column", (column) => h("button", { type: "button", class: "link", "data-focus": `column ${column.name}`, onclick: open(column.name) }, h("code", {}, column.name)), "column"],
    ["Type", (column) => h("span", { class: "skst-dim skst-short" }, column.type)],
    ["Files are", (column) => column.layout === "unknown" ? h("span", { class: "skst-dim" }, "without bounds") : h("span", { class: `badge ${STYLES[column.layout] ?? ""}` }, column.layout)],
    ["A look-up opens", (column) => `${column.depth.toLocaleString("en-US", { maximumFractionDigits: 1, minimumFractionDigits: 1 })} (${percent(column.depth, all.measured)})`, "skst-number"],
    ["Overlap", spark],
    ["Range", (column) => column.lower === null ? "" : h("code", {}, `${column.lower} … ${column.upper}`), "range"],
  ], all.columns);
  overview.querySelectorAll("tbody tr").forEach((row, at) => { if (names[at] === chosen) row.setAttribute("aria-current", "true"); });
  const left = phrase(all.of_columns > names.length && `${count(all.of_columns - names.length)} more columns`, all.unordered.length && `without an order: ${all.unordered.slice(0, 20).join(", ")}`);
  swap(panel, h("div", { class: "chart" }), h("p", { class: "note" }, phrase(`bounds of ${part} from ${SOURCES[all.source]}`, left)), roving(overview, "button.link"));
  chart(panel.querySelector(".chart"), spans, Boolean(scan.where), go);
}

function spark(column) {
  const node = h("span", { class: "spark", role: "img", "aria-label": `overlap along the range: ${column.profile.map((share) => percent(share, 1)).join(", ")}` });
  for (const share of column.profile) {
    const one = h("i");
    one.style.height = `${Math.max(6, 100 * share)}%`;
    node.append(one);
  }
  return node;
}

function chart(node, spans, filtered, go) {
  const { bands, overlap } = spans;
  const deepest = Math.max(0, ...overlap);
  const kept = bands.reduce((sum, band) => sum + (band.kept ?? band.files), 0);
  const gone = phrase(spans.unbounded && `${plural(spans.unbounded, "file")} without bounds`, spans.only_null && `${plural(spans.only_null, "file")} with only NULL`);
  const said = phrase(`at most ${plural(deepest, "file")} overlap`, filtered && `${count(kept)} of ${plural(spans.measured, "drawn file")} kept by the condition`, gone);
  const canvas = h("canvas", { tabindex: 0, role: "img", "data-focus": "chart", "aria-describedby": "readout",
    "aria-label": `Ranges of ${spans.name}: ${said}. Arrow keys move through the files.` });
  const readout = h("p", { class: "readout", id: "readout", "aria-live": "polite" });
  node.replaceChildren(h("h3", {}, spans.name), h("p", { class: "note" }, said));
  if (!bands.length) return node.append(h("p", { class: "note" }, "No file has bounds for this column: every look-up opens all files."));
  node.append(canvas, h("div", { class: "ends" }, h("code", {}, spans.lower ?? ""), h("code", {}, spans.upper ?? "")), readout);
  const [top, gap] = [52, 10];
  const tall = Math.max(2, Math.min(14, 300 / bands.length));
  let here = -1;

  function draw() {
    const [width, height] = [node.clientWidth - 32, top + gap + tall * bands.length];
    if (width <= 0) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = inks(node);
    pen.fillStyle = ink("files");
    // Whole pixels, so that no seams show between neighbours.
    const edge = (cell) => Math.round(cell * width / overlap.length);
    overlap.forEach((depth, at) => {
      const high = deepest ? (top - 2) * depth / deepest : 0;
      pen.fillRect(edge(at), top - high, edge(at + 1) - edge(at), high);
    });
    pen.fillStyle = ink("line");
    pen.fillRect(0, top, width, 1);
    bands.forEach((band, at) => {
      const y = top + gap + at * tall;
      const slim = tall > 4 ? 1 : 0;
      if (at === here) { pen.fillStyle = ink("line"); pen.fillRect(0, y, width, Math.max(tall, 3)); }
      const tone = !filtered ? "groups" : band.kept ? "kept" : "other";
      if (!band.cells) {
        pen.fillStyle = ink(tone);
        const x = Math.min(band.low * width, width - 2);
        pen.fillRect(x, y, Math.max((band.high - band.low) * width, 2), tall - slim);
        return;
      }
      // The darker, the more of the band's files are there; the greener, the more of them are kept.
      for (const [name, part] of tone === "kept" ? [["other", 1], ["kept", 0.3 + 0.7 * band.kept / band.files]] : [[tone, 1]]) {
        pen.fillStyle = ink(name);
        [...band.cells].forEach((share, place) => {
          if (share === "0") return;
          pen.globalAlpha = (0.25 + 0.75 * share / 9) * part;
          pen.fillRect(edge(place), y, edge(place + 1) - edge(place), tall - slim);
        });
      }
      pen.globalAlpha = 1;
    });
  }
  function point(at) {
    if (at === here) return;
    here = at;
    const band = bands[at];
    readout.replaceChildren();
    if (band) {
      const more = band.files > 1 ? ` and ${plural(band.files - 1, "file")} after it` : "";
      const verdict = !filtered ? "" : band.files > 1 ? `${count(band.kept)} of ${count(band.files)} kept` : band.kept ? "kept" : "dropped";
      readout.append(h("code", {}, `${band.lower} … ${band.upper}`), clean(` · ${phrase(verdict, band.file.split("/").at(-1) + more)}`));
    } else readout.append(h("span", { class: "skst-dim" }, "Above: how many files overlap. Below: a line per file, from its lower to its upper bound. Point at one, or use the arrow keys."));
    draw();
  }
  const reach = (event) => Math.floor((event.offsetY - top - gap) / tall);
  const open = () => { if (bands[here]?.files === 1) go({ view: "files", show: "all", file: bands[here].file }); };
  const step = (by) => () => point(Math.max(0, Math.min(bands.length - 1, here + by)));
  canvas.addEventListener("mousemove", (event) => point(bands[reach(event)] ? reach(event) : -1));
  canvas.addEventListener("mouseleave", () => point(-1));
  canvas.addEventListener("click", open);
  canvas.addEventListener("keydown", key({ ArrowDown: step(1), ArrowUp: step(-1), PageDown: step(20), PageUp: step(-20), Home: () => point(0), End: () => point(bands.length - 1), Enter: open, Escape: () => point(-1) }));
  here = -2;
  point(-1);
  const watch = new ResizeObserver(() => node.isConnected ? draw() : stop());
  const stop = () => { watch.disconnect(); removeEventListener("theme", draw); };
  watch.observe(node);
  addEventListener("theme", draw);
}

/** The colours of the style sheet in the current theme. */
function inks(node) {
  const probe = h("span");
  node.append(probe);
  const found = {};
  for (const name of ["files", "groups", "kept", "other", "line"]) {
    probe.style.color = `var(--skst-${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return (name) => found[name];
}

// -- snapshots ---------------------------------------------------------------------------------

async function snapshots({ state, ask, panel, go }) {
  const all = await once(ask, "api/snapshots", { table: state.name });
  if (!all.snapshots.length) return swap(panel, h("p", { class: "note" }, "The table has no snapshots."));
  const change = (one, noun) => phrase(one[`added_${noun}`] && `+${count(one[`added_${noun}`])}`, one[`removed_${noun}`] && `−${count(one[`removed_${noun}`])}`).replace(" · ", " ");
  const chosen = state.snapshot || all.snapshots.find((one) => one.current)?.id;
  const rows = table([
    ["Snapshot", (one) => h("button", { type: "button", class: "link", "data-focus": `snapshot ${one.id}`, title: "Plan at this snapshot", onclick: () => go({ snapshot: one.current ? "" : one.id, file: "" }) }, h("code", {}, one.id)), "skst-firm"],
    ["Committed (UTC)", (one) => one.at.slice(0, 19).replace("T", " "), "skst-firm"],
    ["Operation", (one) => one.operation ?? ""],
    ["Files", (one) => change(one, "files"), "skst-number"],
    ["Rows", (one) => change(one, "rows"), "skst-number"],
    ["Delete files", (one) => change(one, "delete_files"), "skst-number"],
    ["Total rows", (one) => one.total_rows === null ? "" : count(one.total_rows), "skst-number"],
    ["References", (one) => one.refs.map((ref) => h("span", { class: `badge ${one.current ? "skst-kept" : ""}` }, ref.name))],
  ], all.snapshots);
  rows.querySelectorAll("tbody tr").forEach((row, at) => { if (all.snapshots[at].id === chosen) row.setAttribute("aria-current", "true"); });
  const more = all.of_snapshots > all.snapshots.length ? `The newest ${count(all.snapshots.length)} of ${count(all.of_snapshots)} snapshots. ` : "";
  swap(panel, h("p", { class: "note" }, `${more}Open one to plan at it.`), roving(rows, "button.link"));
}

// -- compaction --------------------------------------------------------------------------------

const compact = { strategy: "binpack", sort_by: "", min_input_files: "", target: "", rewrite_all: false, filtered: false };

/** The options, which stay in place while results come and go. */
function compactionTools(again) {
  const change = (name, field) => (event) => { compact[name] = event.target[field]; again(); };
  const input = (name, type, extra) => h("input", { type, name, value: compact[name], onchange: change(name, "value"), ...extra });
  const check = (name, text) => h("label", {}, h("input", { type: "checkbox", name, checked: compact[name], onchange: change(name, "checked") }), text);
  const strategy = h("select", { onchange: change("strategy", "value") },
    ...["binpack", "sort", "zorder", "hilbert"].map((name) => h("option", { value: name, selected: name === compact.strategy }, name)));
  return h("div", { class: "tools compaction" }, h("label", {}, "Strategy", strategy), h("label", {}, "by", input("sort_by", "text", { placeholder: "columns" })),
    h("label", {}, "At least", input("min_input_files", "number", { min: 1 }), "files"), h("label", {}, "Target", input("target", "number", { min: 1 }), "MB"),
    check("rewrite_all", "rewrite all"), check("filtered", "only partitions that can match the condition"));
}

async function compaction({ state, ask, panel, again }) {
  const body = { table: state.name, strategy: compact.strategy, rewrite_all: compact.rewrite_all };
  if (compact.min_input_files) body.min_input_files = Number(compact.min_input_files);
  if (compact.target) body.target_file_size_bytes = Math.round(Number(compact.target) * 1e6);
  if (compact.sort_by.trim() && compact.strategy !== "binpack") body.sort_by = compact.sort_by.split(",").map((name) => name.trim());
  if (compact.filtered && state.where.trim()) body.where = state.where;
  let [made, failure] = [null, null];
  try {
    made = await once(ask, "api/compaction", body);
  } catch (error) {
    if (error.status !== 400) throw error;
    failure = error;
  }
  if (!panel.querySelector(".tools.compaction")) panel.replaceChildren(compactionTools(again), h("div", { class: "result" }));
  const [tools, place] = panel.children;
  const option = (name) => tools.querySelector(`[name=${name}]`);
  option("sort_by").parentElement.hidden = compact.strategy === "binpack";
  option("filtered").disabled = !state.where.trim();
  if (failure) return place.replaceChildren(h("p", { class: "skst-bad", role: "alert" }, failure.message));
  option("min_input_files").placeholder = made.min_input_files;
  option("target").placeholder = Math.round(made.target_file_size_bytes / 1e6);
  const head = made.groups.length
    ? `${plural(made.files, "file")} in ${plural(made.of_groups, "group")} would become about ${plural(made.expected_files, "file")}: ${size(made.bytes)} to read and write`
    : "Nothing to compact";
  const stats = made.filter_stats;
  const judged = phrase(`${count(made.matched)} of ${plural(made.of_files, "file")} in partitions that can match`,
    stats.unconstrained_specs && `${plural(stats.unconstrained_specs, "spec")} without a column of the condition`,
    stats.unevaluable_specs && `${plural(stats.unevaluable_specs, "spec")} can't be evaluated`,
    stats.fail_open_partitions && `${plural(stats.fail_open_partitions, "partition")} (${plural(stats.fail_open_files, "file")}) kept because they can't be evaluated`,
    stats.eval_errors && `${plural(stats.eval_errors, "evaluation")} failed`);
  const groups = table([
    ["Group", (one) => String(one.id), "skst-number"],
    ["Partition", (one) => h("code", {}, one.name), "name"],
    ["Files", (one) => count(one.files), "skst-number"],
    ["Size", (one) => size(one.bytes), "skst-number"],
    ["Rows", (one) => count(one.rows), "skst-number"],
    ["New files", (one) => count(one.expected_files), "skst-number"],
    ["Why", (one) => phrase(...Object.entries(one.reasons).map(([name, n]) => `${name} ${count(n)}`), one.delete_files && plural(one.delete_files, "delete file")), "text"],
  ], made.groups);
  const skipped = table([
    ["Skipped", (one) => h("code", {}, one.name), "name"],
    ["Files", (one) => count(one.files), "skst-number"],
    ["Size", (one) => size(one.bytes), "skst-number"],
    ["Why", (one) => one.reason, "text"],
  ], made.skipped);
  const rest = (of, shown, noun) => of > shown.length ? h("p", { class: "note" }, `${plural(of - shown.length, `more ${noun}`)}`) : null;
  swap(place, h("p", { class: "skst-bold", role: "status" }, head),
    h("p", { class: "note" }, `A dry run at snapshot ${made.snapshot ?? "–"}: nothing is rewritten. ${judged}.`),
    made.groups.length ? groups : null, rest(made.of_groups, made.groups, "group"), made.skipped.length ? skipped : null, rest(made.of_skipped, made.skipped, "skipped group"));
}

export const views = { files, layout, snapshots, compaction };
