// Elements, numbers for people, and keys.

const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** The text with control and direction characters made visible: names and values come from files. */
export const clean = (text) => String(text).replace(CONTROL, (c) => c === "\n" ? c : `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);

/** An element. Children are elements or texts, which never become markup. */
export function h(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : key === "title" || key === "aria-label" ? clean(value) : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : clean(child));
  return node;
}

// -- numbers -----------------------------------------------------------------------------------

export const count = (number) => number.toLocaleString("en-US");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const phrase = (...parts) => parts.filter(Boolean).join(" · ");

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
export function size(number) {
  let [value, unit] = [number, 0];
  while (value >= (unit ? 999.95 : 1000) && unit + 1 < SIZES.length) { value /= 1000; unit += 1; }
  return unit ? `${value.toFixed(1)} ${SIZES[unit]}` : `${number} B`;
}

export function percent(part, whole) {
  if (whole <= 0) return "–";
  const share = 100 * part / whole;
  if (share > 0 && share < 0.1) return "<0.1 %";
  if (share > 99.9 && share < 100) return ">99.9 %";
  return `${share.toFixed(share < 10 || share > 99 ? 1 : 0).replace(/\.0$/, "")} %`;
}

export const share = (part, whole, form = count) => whole ? `${form(part)} of ${form(whole)} (${percent(part, whole)})` : form(part);

// -- drawings ----------------------------------------------------------------------------------

/** Parts of a total side by side: [ink, size, meaning]. */
export function bar(parts, form = count) {
  const shown = parts.filter((part) => part[1] > 0);
  const said = shown.map(([, n, meaning]) => `${form(n)} ${meaning}`);
  return h("div", { class: "skst-bar", role: "img", "aria-label": said.join(", ") || "nothing" }, ...shown.map(([ink, n], at) => {
    const part = h("span", { title: said[at] });
    part.style.flexGrow = n;
    part.style.background = `var(--skst-${ink})`;
    return part;
  }));
}

/** A table: columns are [title, cell of a row, class]. */
export function table(columns, rows, head = {}) {
  return h("div", { class: "scroll" }, h("table", head,
    h("thead", {}, h("tr", {}, ...columns.map(([title, , style]) => h("th", { class: style, scope: "col" }, title)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...columns.map(([, cell, style]) => h("td", { class: style }, cell(row))))))));
}

// -- keys --------------------------------------------------------------------------------------

/** A handler of keys; a key whose function returns false keeps its own meaning. */
export const key = (keys) => (event) => {
  if (keys[event.key] && !event.isComposing && keys[event.key](event) !== false) event.preventDefault();
};

/** Keys of a list with one tab stop: arrows, Home and End move, Enter and Space open. */
export function listKeys(items, open, back = "ArrowUp", forth = "ArrowDown", opens = false) {
  const move = (to) => {
    const all = items();
    const here = all.indexOf(document.activeElement);
    const next = all[Math.max(0, Math.min(all.length - 1, to(here, all.length)))];
    if (here < 0 || !next) return false;
    for (const one of all) one.tabIndex = one === next ? 0 : -1;
    next.focus();
    if (opens) open(next);
  };
  return key({
    [back]: () => move((here) => here - 1),
    [forth]: () => move((here) => here + 1),
    Home: () => move(() => 0),
    End: () => move((_, length) => length - 1),
    ...(opens ? {} : { Enter: () => items().includes(document.activeElement) && open(document.activeElement), " ": () => items().includes(document.activeElement) && open(document.activeElement) }),
  });
}
