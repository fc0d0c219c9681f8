// The state of the page, which is the address behind #, and the live part: lakes, condition, funnel.
import { bar, clean, count, h, key, listKeys, percent, phrase, plural, share, size } from "./parts.js";
import { views } from "./views.js";

const $ = (id) => document.getElementById(id);
const WAIT = 140; // milliseconds after the last key
const ORDER = ["partitions", "manifests", "files", "row groups"];
const CAUSES = { bounds: "bounds", partition: "partition", page: "page bounds", bloom: "bloom filter", nulls: "null count" };

let state = {};
let sources = [];
const latest = {}; // work under way, of which only the newest of each kind counts
let timer = 0;

// -- questions ---------------------------------------------------------------------------------

class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("server does not respond", 0);
  }
  const document = await answer.json().catch(() => null);
  signal?.throwIfAborted();
  if (answer.ok && document) return document;
  if (answer.status === 401) login(token ? document?.error?.message : "");
  throw new Problem(document?.error?.message ?? `server answered with status ${answer.status}`, answer.status);
}

/** The lake or table that questions are about, at the chosen snapshot. */
function about() {
  const named = { [state.kind]: state.name };
  return state.snapshot ? { ...named, snapshot: state.snapshot } : named;
}

/** The scan that the condition describes. */
function scan() {
  return state.where.trim() ? { ...about(), where: state.where } : about();
}

/** Do work, unless newer work of the same kind has begun; problems are shown, not thrown. A late answer dims its place. */
async function newest(kind, place, work, failed) {
  latest[kind]?.abort();
  const mine = (latest[kind] = new AbortController());
  const late = setTimeout(() => place.classList.add("stale"), 250);
  mine.signal.addEventListener("abort", () => clearTimeout(late));
  const settle = () => { clearTimeout(late); place.classList.remove("stale"); };
  try {
    await work(mine.signal);
    if (!mine.signal.aborted) settle();
  } catch (error) {
    if (error.name === "AbortError" || mine.signal.aborted) return;
    mine.abort(); // the other questions of this work, whose late refusals would ask for a token again
    if (!(error instanceof Problem)) console.error(error);
    settle();
    failed(error);
  }
}

// -- the address -------------------------------------------------------------------------------

const OF_TABLES = ["snapshots", "compaction"];
const MEMBERS = ["where", "snapshot", "view", "column", "file", "show"];

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const kind = given.has("table") ? "table" : "lake";
  const one = { kind, name: given.get(kind) ?? "" };
  for (const name of MEMBERS) one[name] = given.get(name) ?? "";
  const known = Object.hasOwn(views, one.view) && !(kind === "lake" && OF_TABLES.includes(one.view));
  if (!known) one.view = "files";
  return one;
}

function address(one) {
  const parts = new URLSearchParams();
  if (one.name) parts.set(one.kind, one.name);
  for (const name of MEMBERS) if (one[name] && !(name === "view" && one.view === "files")) parts.set(name, one[name]);
  return `#${parts}`;
}

/** Change the state; a step is one that the back button undoes. */
export function go(changes, step = true) {
  // What was typed a moment ago counts, too.
  const typed = timer ? { where: $("where").value } : {};
  settled();
  const next = address({ ...state, ...typed, ...changes });
  if (next !== (location.hash || "#")) history[step ? "pushState" : "replaceState"](null, "", next);
  apply();
}

function settled() {
  clearTimeout(timer);
  timer = 0;
}

function apply() {
  const before = state;
  state = read();
  const moved = before.kind !== state.kind || before.name !== state.name;
  const other = moved || before.where !== state.where || before.snapshot !== state.snapshot;
  document.title = state.name ? `${clean(state.name)} · Skipstone` : "Skipstone";
  $("start").hidden = Boolean(state.name);
  $("lake").hidden = !state.name;
  mark();
  if (!state.name) return;
  if ($("where").value !== state.where) $("where").value = state.where;
  if (moved) {
    $("name").replaceChildren(clean(state.name));
    $("about").textContent = "";
    $("funnel").replaceChildren(h("p", { class: "note wait" }, "Planning …"));
    $("view").replaceChildren();
  }
  $("pinned").hidden = !state.snapshot;
  const back = h("button", { type: "button", class: "quiet", onclick: () => go({ snapshot: "" }) }, "current snapshot");
  $("pinned").replaceChildren(`at snapshot ${clean(state.snapshot)}`, back);
  for (const tab of $("views").children) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    tab.hidden = state.kind === "lake" && OF_TABLES.includes(tab.dataset.view);
  }
  $("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  if (other) plan();
  else show();
}

// -- lakes and tables --------------------------------------------------------------------------

async function load() {
  await newest("sources", $("sources"), async (signal) => {
    const [lakes, tables] = await Promise.all([ask("api/lakes", null, signal), ask("api/tables", null, signal)]);
    sources = [...lakes.lakes.map((name) => ["lake", name]), ...tables.tables.map((name) => ["table", name])];
    $("enter").hidden = true;
    $("forget").hidden = !sessionStorage.getItem("token");
    list();
    apply();
  }, (error) => {
    $("enter").hidden = error.status !== 401;
    nothing(error.status === 401 ? "A token is needed." : `${error.message}.`);
  });
}

function nothing(text) {
  $("sources").replaceChildren();
  $("none").textContent = text;
  $("none").hidden = false;
}

const SHOWN = 500;

function list() {
  const wanted = $("find").value.trim().toLowerCase();
  const found = sources.filter(([, name]) => name.toLowerCase().includes(wanted));
  if (!found.length) return nothing(sources.length ? "No name matches." : "There are no lakes or tables that you may read.");
  const nodes = [];
  for (const [kind, title] of [["lake", "Directories"], ["table", "Tables"]]) {
    const mine = found.filter((one) => one[0] === kind);
    if (mine.length) nodes.push(h("li", { class: "head skst-label", role: "presentation" }, title));
    nodes.push(...mine.slice(0, SHOWN).map(([, name]) => h("li", {
      role: "option", tabindex: -1, "data-kind": kind, "data-name": name, onclick: () => open(kind, name),
    }, name)));
    if (mine.length > SHOWN) nodes.push(h("li", { class: "head skst-dim", role: "presentation" }, `${count(mine.length - SHOWN)} more: type a part of the name`));
  }
  $("none").hidden = true;
  $("sources").replaceChildren(...nodes);
  mark();
}

const options = () => [...$("sources").querySelectorAll("[role=option]")];

function mark() {
  const all = options();
  for (const one of all) one.setAttribute("aria-selected", one.dataset.kind === state.kind && one.dataset.name === state.name);
  const first = all.find((one) => one.getAttribute("aria-selected") === "true") ?? all[0];
  for (const one of all) one.tabIndex = one === first ? 0 : -1;
}

function open(kind, name) {
  const same = kind === state.kind && name === state.name;
  if (!same) go({ kind, name, where: "", snapshot: "", column: "", file: "", show: "" });
  $("where").focus();
}

// -- the funnel --------------------------------------------------------------------------------

function plan() {
  const began = performance.now();
  newest("plan", $("funnel"), async (signal) => {
    const trace = await ask("api/explain", scan(), signal);
    complain("");
    draw(trace, performance.now() - began);
    show();
  }, (error) => {
    const wrong = error.status === 400 && state.where.trim();
    complain(error.status === 401 ? "A token is needed." : error.message, wrong);
    $("funnel").classList.add("stale");
    if (!$("funnel").querySelector(".skst-row")) $("funnel").replaceChildren(wrong ? h("p", { class: "note" }, "The plan is shown here when the condition can be read.") : "");
    if (!wrong) show();
  });
}

function complain(text, wrong = false) {
  $("problem").textContent = clean(text);
  $("ask").classList.toggle("bad", Boolean(wrong));
  $("where").setAttribute("aria-invalid", Boolean(wrong));
}

function draw(trace, took) {
  const reads = trace.reads ?? { bytes: 0, bytes_total: 0, requests: 0 };
  const uses = trace.index ? `index covers ${count(trace.index.covered)} of ${plural(trace.files, "file")}` : "no index";
  $("about").textContent = phrase(plural(trace.files, "file"), size(trace.file_bytes), uses);
  $("about").title = clean(trace.lake);
  const cards = [
    ["files to read", count(trace.tasks), `${percent(trace.tasks, trace.files)} of ${count(trace.files)}`],
    ["rows that may match", count(trace.rows_kept), phrase(`of ${count(trace.rows_total)} examined`, trace.rows_proven && `${count(trace.rows_proven)} proven`)],
    ["data to read", size(reads.bytes), reads.bytes_total ? phrase(`${percent(reads.bytes, reads.bytes_total)} of ${size(reads.bytes_total)}`, `about ${plural(reads.requests, "request")}`) : "none"],
    ["answered in", took < 1000 ? `${Math.max(1, Math.round(took))} ms` : `${(took / 1000).toFixed(2)} s`, trace.requests ? `${plural(trace.requests, "request")} for ${size(trace.bytes)} of metadata` : "no metadata was read"],
  ];
  const rank = (one) => (ORDER.indexOf(one.name) + ORDER.length) % ORDER.length + (ORDER.includes(one.name) ? 0 : ORDER.length);
  const levels = [...trace.levels].sort((a, b) => rank(a) - rank(b));
  const rows = [...levels.map(level), bytes(reads)];
  const more = [
    ["not prunable", trace.unsupported],
    ["notes", trace.notes.map((one) => `${one.unit}: ${one.reason}`)],
    ["index", trace.index?.problems ?? []],
  ].filter(([, lines]) => lines.length).map(([title, lines]) => h("details", { class: "more" },
    h("summary", {}, `${title} (${count(lines.length)})`), h("ul", {}, ...lines.slice(0, 20).map((line) => h("li", {}, line)))));
  $("funnel").replaceChildren(
    h("div", { class: "skst-cards" }, ...cards.map((card) => h("div", { class: "skst-card" },
      ...["label", "figure", "aside"].map((part, at) => h("div", { class: `skst-${part}` }, card[at]))))),
    ...rows, legend(levels), ...more);
  $("said").textContent = `${plural(trace.tasks, "file")} of ${count(trace.files)}, ${plural(trace.rows_kept, "row")}, ${size(reads.bytes)} to read`;
}

function level(one) {
  const dropped = {};
  for (const drop of one.drops) dropped[drop.cause] = (dropped[drop.cause] ?? 0) + drop.units;
  const rest = one.dropped - Object.values(dropped).reduce((a, b) => a + b, 0);
  const parts = [
    ["proven", one.proven, "proven to match"],
    ["kept", one.kept - one.proven, "kept"],
    ...Object.entries(dropped).map(([cause, units]) => [cause, units, `dropped by ${CAUSES[cause] ?? cause}`]),
    ["other", rest, "dropped for other reasons"],
  ];
  const rows = one.rows === null || !one.kept ? "" : plural(one.rows, "row");
  const said = one.units ? phrase(`kept ${share(one.kept, one.units)}`, one.proven && `${count(one.proven)} proven`, rows) : "nothing to judge";
  const drops = [...one.drops].sort((a, b) => b.units - a.units);
  const reasons = drops.slice(0, 3).flatMap((drop) => [
    h("span", { class: "count" }, `${count(drop.units)} dropped by ${CAUSES[drop.cause] ?? drop.cause}`), h("code", {}, drop.condition)]);
  if (drops.length > 3) reasons.push(h("span", { class: "count" }, plural(drops.length - 3, "more reason")), h("span"));
  return h("div", { class: "skst-row", "data-level": one.name }, h("div", { class: "skst-name", title: one.name }, one.name),
    bar(parts), h("div", { class: "skst-said" }, said),
    reasons.length ? h("div", { class: "skst-below why-dropped" }, ...reasons) : null);
}

function bytes(reads) {
  const rest = Math.max(reads.bytes_total - reads.bytes, 0);
  return h("div", { class: "skst-row", "data-level": "bytes" }, h("div", { class: "skst-name" }, "bytes"),
    bar([["kept", reads.bytes, "to read"], ["line", rest, "skipped"]], size),
    h("div", { class: "skst-said" }, reads.bytes_total ? `read ${share(reads.bytes, reads.bytes_total, size)}` : "nothing to read"));
}

function legend(levels) {
  const seen = new Set(levels.flatMap((one) => one.drops.map((drop) => drop.cause)));
  const dots = [["proven", "proven", levels.some((one) => one.proven)], ["kept", "kept", true], ...[...seen].map((cause) => [cause, `dropped by ${CAUSES[cause] ?? cause}`, true])];
  return h("div", { class: "skst-legend" }, ...dots.filter((one) => one[2]).map(([ink, text]) => {
    const dot = h("span", { class: "skst-dot" });
    dot.style.background = `var(--skst-${ink})`;
    return h("span", {}, dot, text);
  }));
}

// -- views -------------------------------------------------------------------------------------

function show() {
  const panel = $("view");
  if (!panel.childElementCount) panel.replaceChildren(h("p", { class: "note wait" }, "Loading …"));
  newest("view", panel, async (signal) => {
    const question = { state, about: about(), scan: scan(), ask: (path, body) => ask(path, body, signal), panel, go, again: show };
    await views[state.view](question);
  }, (error) => {
    panel.replaceChildren(h("p", { class: "note skst-bad", role: "alert" }, `${error.message}`),
      h("button", { type: "button", onclick: show }, "Try again"));
  });
}

// -- tokens and theme --------------------------------------------------------------------------

function login(refusal) {
  sessionStorage.removeItem("token");
  $("refused").textContent = clean(refusal ?? "");
  if (!$("login").open) $("login").showModal();
}

$("login").addEventListener("close", () => {
  const token = $("token").value.trim();
  $("token").value = "";
  if ($("login").returnValue !== "use" || !token) return;
  $("login").returnValue = "";
  sessionStorage.setItem("token", token);
  state = {};
  load();
});
$("enter").addEventListener("click", () => login(""));
$("forget").addEventListener("click", () => {
  sessionStorage.removeItem("token");
  history.replaceState(null, "", "#");
  location.reload();
});

const dark = matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const chosen = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  $("theme").setAttribute("aria-pressed", chosen === "dark");
  dispatchEvent(new Event("theme"));
  return chosen;
}
try {
  const stored = localStorage.getItem("theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch { /* without storage the system's theme is used */ }
dark.addEventListener("change", theme);
$("theme").addEventListener("click", () => {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* as above */ }
  theme();
});

// -- keys --------------------------------------------------------------------------------------

$("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
$("find").addEventListener("input", list);
$("find").addEventListener("keydown", key({
  ArrowDown: () => options()[0]?.focus(),
  Enter: () => { const one = options()[0]; if (one) open(one.dataset.kind, one.dataset.name); },
  Escape: () => { $("find").value = ""; list(); },
}));
$("sources").addEventListener("keydown", listKeys(options, (one) => open(one.dataset.kind, one.dataset.name)));
$("where").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => go({ where: $("where").value, file: "" }, false), WAIT);
});
$("where").addEventListener("keydown", key({
  Enter: (event) => {
    if (event.shiftKey) return false;
    if ($("where").value === state.where) plan();
    else go({ where: $("where").value, file: "" });
  },
  Escape: () => go({ where: "", file: "" }),
}));
$("ask").addEventListener("submit", (event) => event.preventDefault());
$("views").addEventListener("click", (event) => { const view = event.target.dataset.view; if (view) go({ view, file: "" }); });
$("views").addEventListener("keydown", listKeys(() => [...$("views").children].filter((tab) => !tab.hidden), (tab) => tab.click(), "ArrowLeft", "ArrowRight", true));
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  (state.name ? $("where") : $("find")).focus();
});
addEventListener("popstate", apply);
addEventListener("hashchange", apply);

theme();
load();
