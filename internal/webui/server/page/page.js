// Draws what the server returns. What a row contains and how it fares is in the data.

import { $, all, byID, el, mark, span } from "./elements.js";

let chosen = ""; // the object with the open timeline
let drawn = new Map(); // the JSON of each part

// tally counts the rows of a part by the worst tone in each.
function tally(part) {
  const n = {};
  for (const t of part.tables ?? []) for (const r of t.rows) {
    const worst = ["bad", "warn"].find((tone) => r.cells.some((c) => c.tone === tone && c.text));
    if (worst) n[worst] = (n[worst] ?? 0) + 1;
  }
  return [n.bad && `${n.bad} in trouble`, n.warn && `${n.warn} waiting`].filter(Boolean).join(", ");
}

function grid(t) {
  let above = "";
  const row = (r) => {
    const first = r.about !== above || r.cells[0].text !== "";
    above = r.about;
    const cells = r.cells.map((c, i) => el("td", { class: [c.tone, t.columns[i].right && "right", c.text.length > 40 && "long"].filter(Boolean).join(" ") || undefined }, c.tone && c.text && mark(c.tone), c.text));
    return el("tr", first ? { "data-id": r.about, tabindex: "-1", "aria-selected": String(r.about === chosen) } : {}, cells);
  };
  return [
    t.title && el("h3", {}, t.title),
    el("div", { class: "scroll" }, el("table", { role: "grid", "data-keys": true },
      el("thead", {}, el("tr", {}, t.columns.map((c) => el("th", { scope: "col", class: c.right ? "right" : undefined }, c.name)))),
      el("tbody", {}, t.rows.map(row)))),
  ];
}

function section(p) {
  return el("section", { id: p.id, "aria-labelledby": "h-" + p.id },
    el("h2", { id: "h-" + p.id }, p.title, span("tally", tally(p))),
    (p.tables ?? []).flatMap(grid),
    (p.lines ?? []).map((l) => el("p", {}, l)),
    (p.notes ?? []).map((n) => el("p", { class: "note" }, n)));
}

// show draws a view. A part that can't be drawn is reported, and the others are drawn.
function show(v) {
  const troubles = [v.trouble], again = drawn.size > 0;
  for (const p of v.parts) {
    const text = JSON.stringify(p);
    if (drawn.get(p.id) === text) continue;
    try {
      const old = document.getElementById(p.id), made = section(p);
      const focused = old?.contains(document.activeElement) && document.activeElement.dataset.id;
      old ? old.replaceWith(made) : $("#parts").append(made);
      all("[data-keys]", made).forEach(rove);
      const e = focused && $(`[data-id="${CSS.escape(focused)}"]`, made);
      if (e) focusOn(e, false);
      drawn.set(p.id, text);
    } catch (e) {
      console.error(e);
      troubles.push(`The page can't draw ${p.title} (${e.message}): report this, and use underlayctl's other commands meanwhile.`);
    }
  }
  const errors = (v.parts[0].tables?.[0].rows ?? []).filter((r) => r.cells[0].tone === "bad").length;
  $("#cluster").textContent = v.cluster;
  document.title = (errors ? `(${errors}) ` : "") + "Underlay: " + v.cluster;
  $("#summary").replaceChildren(...v.parts.map((p) => el("a", { href: "#" + p.id }, el("b", {}, p.title), span("", tally(p) || p.lines?.[0] || p.notes?.[0] || "well"))));
  $("#unseen").hidden = !v.notSeen?.length;
  $("#unseen ul").replaceChildren(...(v.notSeen ?? []).map((n) => el("li", {}, n)));
  const text = troubles.filter(Boolean).join(" ");
  $("#trouble").hidden = !text;
  if ($("#trouble").textContent !== text) $("#trouble").textContent = text;
  if (chosen && again) inspect(chosen, true);
  document.body.dataset.taken = v.taken;
}

// rove leaves one of a table's rows to the Tab key; arrows move among them.
function rove(box) {
  const items = all("[data-id]", box);
  if (items.length && !items.some((e) => e.tabIndex === 0)) items[0].tabIndex = 0;
}

function move(box, from, key) {
  const items = all("[data-id]", box), i = items.indexOf(from);
  const to = { Home: items[0], End: items.at(-1), ArrowDown: items[i + 1], ArrowUp: items[i - 1] }[key];
  if (to) focusOn(to);
}

function focusOn(e, scroll = true) {
  all("[tabindex='0']", e.closest("[data-keys]")).forEach((o) => { o.tabIndex = -1; });
  e.tabIndex = 0;
  e.focus({ preventScroll: true });
  if (scroll) e.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

const select = () => all("[aria-selected]", $("#parts")).forEach((e) => e.setAttribute("aria-selected", String(e.dataset.id === chosen)));

// choose opens the timeline of a Node or a Service. Other objects have none.
function choose(id) {
  if (!/^(Node|Service)\//.test(id)) return;
  chosen = id;
  select();
  inspect(id, false);
}

function close() {
  const was = chosen;
  chosen = "";
  $("#detail").hidden = true;
  select();
  if (was && byID(was)) focusOn(byID(was));
}

const get = async (path) => (await fetch(path)).json();

async function inspect(id, again) {
  const box = $("#detail"), body = $(".body", box);
  $("#h-detail").textContent = id.replace("/", " ");
  if (!again) {
    body.replaceChildren(span("sub", "looking…"));
    box.hidden = false;
    box.scrollIntoView({ block: "nearest" });
  }
  let found;
  try {
    found = await get("inspect?about=" + encodeURIComponent(id));
  } catch (e) {
    found = { error: "underlayctl does not answer" };
  }
  if (chosen !== id) return;
  const text = JSON.stringify(found);
  if (again && body.source === text) return;
  body.source = text;
  if (found.error) return body.replaceChildren(el("p", { class: "bad" }, found.error));
  let day = "";
  const [facts, timeline] = found.tables.map((t) => t.rows.map((r) => r.cells));
  const entry = ([time, source, what]) => {
    const [date, clock] = time.text.slice(0, 19).split("T"), head = date === day ? "" : date + " ";
    day = date;
    return el("li", {}, mark(what.tone ?? "good"), el("time", { datetime: time.text }, head + clock), span("source", source.text + " "), span(what.tone ?? "", what.text));
  };
  body.replaceChildren(
    el("dl", {}, facts.flatMap(([name, value]) => [el("dt", {}, name.text), el("dd", {}, value.text)])),
    el("h3", {}, "What happened, in UTC"), el("ol", { class: "time" }, timeline.map(entry)),
    ...(found.notSeen ?? []).map((n) => span("sub", "Not seen: " + n)));
}

// Searching: the server finds, arrows choose, Enter opens.
let asked = 0;
async function search() {
  const text = $("#find").value.trim(), mine = ++asked;
  if (!text) return hits([], 0);
  try {
    const found = await get("find?q=" + encodeURIComponent(text));
    if (mine === asked) hits(found.hits, found.all);
  } catch (e) {
    $("#hits").hidden = true;
  }
}
function hits(found, count) {
  const list = $("#hits"), input = $("#find");
  list.replaceChildren(...found.map((h, i) => el("li", { role: "option", id: "hit-" + i, "data-hit": h.about, "aria-selected": String(i === 0) }, h.about, span("", h.why))));
  if (count > found.length) list.append(el("li", { role: "presentation" }, span("", `and ${count - found.length} more`)));
  if (count === 0 && input.value.trim()) list.append(el("li", { role: "presentation" }, span("", "nothing has that name or address")));
  list.hidden = list.children.length === 0;
  input.setAttribute("aria-expanded", String(!list.hidden));
  input.setAttribute("aria-activedescendant", found.length ? "hit-0" : "");
}
function take(hit) {
  const id = hit.dataset.hit, e = byID(id);
  $("#find").value = "";
  hits([], 0);
  if (e) focusOn(e);
  choose(id);
}

$("#find").addEventListener("input", search);
$("#find").addEventListener("keydown", (event) => {
  const options = all("[data-hit]"), i = options.findIndex((o) => o.getAttribute("aria-selected") === "true");
  if (event.key === "Enter" && options[i]) { event.preventDefault(); take(options[i]); }
  else if (event.key === "Escape") { event.target.value = ""; hits([], 0); event.target.blur(); event.stopPropagation(); }
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && options.length) {
    const next = options[(i + (event.key === "ArrowDown" ? 1 : options.length - 1)) % options.length];
    options.forEach((o) => o.setAttribute("aria-selected", String(o === next)));
    event.target.setAttribute("aria-activedescendant", next.id);
    event.preventDefault();
  }
});
$("#hits").addEventListener("pointerdown", (event) => { const hit = event.target.closest("[data-hit]"); if (hit) { event.preventDefault(); take(hit); } });
$("#find").addEventListener("blur", () => hits([], 0));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === $("#find")) return;
  const box = event.target.closest?.("[data-keys]"), id = event.target.dataset?.id;
  if (event.key === "/") { event.preventDefault(); $("#find").focus(); }
  else if (event.key === "Escape" && chosen) close();
  else if (event.key === "Enter" && id) choose(id);
  else if (box && /^(ArrowUp|ArrowDown|Home|End)$/.test(event.key)) { event.preventDefault(); move(box, event.target, event.key); }
});
document.addEventListener("click", (event) => {
  const e = event.target.closest("[data-id]");
  if (event.target.closest("#close")) close();
  else if (e) { focusOn(e); e.dataset.id === chosen ? close() : choose(e.dataset.id); }
});

// While no person can see the page it requests nothing, so that a forgotten tab costs no requests.
let next;
const live = (text, lost) => { const e = $("#live"); if (e.textContent !== text) e.textContent = text; e.classList.toggle("lost", lost); };
async function follow() {
  clearTimeout(next);
  if (document.hidden) return;
  try {
    const v = await get("view");
    show(v);
    live(v.trouble ? "not up to date" : "live", Boolean(v.trouble));
  } catch (e) {
    live("underlayctl has ended", true);
  }
  clearTimeout(next);
  next = setTimeout(follow, 2000);
}
document.addEventListener("visibilitychange", follow);
follow();
