// Draws what the server sends. Nothing is decided here but where things stand: what a
// machine is called, how it fares and what is folded comes with the data.

import { $, all, byID, el, keep, mark, sentence, span } from "./elements.js";

let view = null;
let chosen = ""; // the ID whose timeline is open
let pointed = ""; // the ID under the pointer or the focus

// thing is a button for a Machine, a Service or a Route.
function thing(name, item, label, ...children) {
  const e = el("button", { class: name + " " + item.tone, "data-id": item.id, "aria-label": label, "aria-pressed": String(item.id === chosen), tabindex: "-1" }, ...children);
  return e;
}

function serviceCard(s) {
  return thing("card", s, sentence("Service " + s.name, s.state, s.by, s.addresses, s.why),
    span("top", mark(s.tone), span("name", s.name), span("state", s.state)),
    s.by && span("sub", s.by),
    s.addresses?.length && span("addr", s.addresses.join("  ")),
    s.ports?.map((p) => span("meter", span("mono", p.text), `${p.healthy} of ${p.targets} healthy`)),
    s.why?.slice(0, 2).map((w) => span("why", w)));
}

function machineCard(m) {
  return thing("card", m, sentence((m.gone ? "Former node " : "Node ") + m.name, m.state, m.ranges.map((r) => `podCIDR ${r.prefix} ${r.how}`), m.why),
    span("top", mark(m.tone), span("name", m.name), span("state", m.state)),
    span("sub", sentence(m.controlPlane && "control plane", m.kind, m.address && "at " + m.address)),
    m.ranges.map((r) => el("span", { class: "range " + r.tone, title: r.how }, mark(r.tone), r.prefix)),
    m.why?.slice(0, 2).map((w) => span("why", w)));
}

function machineTile(m) {
  const e = thing(m.controlPlane ? "tile plane" : "tile", m, sentence((m.gone ? "Former node " : "Node ") + m.name, m.state, m.ranges.map((r) => r.prefix), m.why));
  e.title = sentence(m.name, m.state, m.ranges.map((r) => r.prefix));
  return e;
}

function routeRow(r) {
  return thing("route", r, sentence(`Route ${r.destination}`, r.gateway && "via " + r.gateway, r.whose, r.leads, r.why),
    mark(r.tone), span("mono", r.destination), span("whose", r.whose),
    span("sub", sentence(r.gateway && "via " + r.gateway, r.leads)), r.why && span("sub", r.why));
}

function group(g) {
  const inside = el("div", { class: !g.folded ? "cards" : g.machines.length > 80 ? "tiles dense" : "tiles" });
  const e = el("details", { class: "group", "data-group": g.id, open: true }, el("summary", {}, g.title, span("", tally(g.machines))), inside);
  e.addEventListener("toggle", links);
  keep(inside, g.machines, g.folded ? machineTile : machineCard);
  return e;
}

function tally(machines) {
  const n = {};
  for (const m of machines) n[m.tone] = (n[m.tone] ?? 0) + 1;
  return ["bad", "wait", "off", "ok"].filter((t) => n[t]).map((t) => `${n[t]} ${t === "off" ? "gone or not seen" : t === "bad" ? "in trouble" : t === "wait" ? "waiting" : "well"}`).join(", ");
}

// groups keeps each group, and within it each machine.
function groups(parent, list) {
  const old = new Map(all("details", parent).map((e) => [e.dataset.group, e]));
  list.forEach((g, i) => {
    let e = old.get(g.id);
    if (e && e.folded === g.folded) {
      keep(e.lastElementChild, g.machines, g.folded ? machineTile : machineCard);
      $("summary", e).replaceChildren(g.title, span("", tally(g.machines)));
    } else {
      e?.remove();
      e = group(g);
    }
    e.folded = g.folded;
    old.delete(g.id);
    if (parent.children[i] !== e) parent.insertBefore(e, parent.children[i] ?? null);
  });
  for (const e of old.values()) e.remove();
}

function bar(b) {
  const parts = b.parts ?? [];
  return el("div", { class: "pool " + b.tone },
    span("top", el("b", {}, b.name), span("state", b.state)),
    b.of && span("sub mono", b.of),
    parts.length > 0 && el("div", { class: "bar", role: "img", "aria-label": sentence(parts.map((p) => `${p.count} ${p.label}`)) },
      parts.map((p) => { const i = el("i", { class: p.kind }); i.style.flexGrow = p.share; return i; })),
    parts.length > 0 && el("div", { class: "parts" }, parts.map((p) => span("", el("i", { class: "swatch " + p.kind }), `${p.count} ${p.label}`))),
    b.note && span("why", b.note));
}

function finding(f) {
  return el(f.id ? "button" : "div", { class: "card finding " + f.tone, "data-to": f.id, tabindex: "-1", role: f.id ? undefined : "group", "aria-label": sentence(f.severity, f.object, f.what, f.remedy) },
    span("top", mark(f.tone), span("name", f.object || f.check), span("state", f.severity)),
    span("what", f.what), f.remedy && span("remedy", f.remedy));
}

function counts(v) {
  const c = v.counts, b = v.table.budget, left = v.pools.find((p) => p.tone !== "ok");
  const tile = (to, number, small, text, tone) => el("a", { href: "#" + to }, el("b", {}, String(number), el("small", {}, " " + small)), span(tone ?? "", text));
  const plural = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;
  return [
    tile("machines", c.machines, "machines", sentence(c.failing && c.failing + " in trouble", c.waiting && c.waiting + " waiting") || "all serve", c.failing ? "bad" : c.waiting ? "wait" : ""),
    tile("services", c.services, "Services", c.unserved ? c.unserved + " to look at" : c.services ? "all served" : "none asks for an address", c.unserved ? "wait" : ""),
    b && tile("routes", b.state.split(" ")[0], b.state.replace(/^\d+ /, "") + " routes", b.note ?? (b.tone === "ok" ? "in the network" : "nearly full"), b.tone === "ok" ? "" : b.tone),
    v.room && tile("pools", v.room.match(/\d+/)[0], "Nodes have room", left ? sentence(left.name, left.state) : plural(v.pools.length, "pool"), left?.tone),
    tile("findings", c.errors + c.warnings, "findings", sentence(c.errors && plural(c.errors, "error"), c.warnings && plural(c.warnings, "warning")) || "nothing is wrong", c.errors ? "bad" : c.warnings ? "wait" : ""),
  ].filter(Boolean);
}

// show draws a message. A part that can't be drawn is told, and the others are drawn.
function show(message) {
  const v = message.view, before = view, troubles = [message.trouble];
  const draw = (part, how) => {
    try {
      how();
    } catch (e) {
      console.error(e);
      troubles.push(`The page can't draw ${part} (${e.message}): report this, and use underlayctl's other commands meanwhile.`);
    }
  };
  const parts = {
    "its head": () => {
      $("#cluster").textContent = v.cluster;
      document.title = (v.counts.errors ? `(${v.counts.errors}) ` : "") + "Underlay: " + v.cluster;
      $("#counts").replaceChildren(...counts(v));
    },
    Services: () => keep($("#services .list"), v.services, serviceCard),
    machines: () => groups($("#machines .groups"), v.groups),
    routes: () => {
      $("#routes .sub").textContent = sentence(v.table.title, v.table.notes);
      $("#routes .budget").replaceChildren(...(v.table.budget ? [bar(v.table.budget)] : []));
      keep($("#routes .list"), v.table.routes, routeRow);
      $("#routes .more").textContent = v.table.folded ? `${v.table.folded} more lead to their Nodes, as they should.` : "";
    },
    findings: () => {
      keep($("#findings .list"), v.findings, finding, (f) => f.check + " " + f.object + " " + f.what);
      $("#findings .none").hidden = v.findings.length > 0;
    },
    pools: () => {
      $("#pools .sub").textContent = v.room ?? "";
      keep($("#pools .list"), v.pools, bar);
    },
    notes: () => {
      const notes = [...(v.notSeen ?? []).map((n) => "Not seen: " + n), ...(v.notes ?? [])];
      $("#notes").hidden = notes.length === 0;
      $("#notes ul").replaceChildren(...notes.map((n) => el("li", {}, n)));
    },
    lines: () => { all("[data-keys]").forEach(rove); point(); links(); },
  };
  if (v) {
    view = v;
    for (const [part, how] of Object.entries(parts)) draw(part, how);
    if (chosen && before) inspect(chosen, true);
    document.body.dataset.taken = v.taken;
  }
  const text = troubles.filter(Boolean).join(" ");
  $("#trouble").hidden = !text;
  if ($("#trouble").textContent !== text) $("#trouble").textContent = text;
}

// links draws what leads where: from Services to their targets, and from machines to
// the routes that lead to them. To a folded group one line stands for many.
function links() {
  const svg = $("#links"), box = svg.getBoundingClientRect();
  if (!view || box.width === 0) return;
  const lines = new Map(), tones = ["ok", "off", "wait", "bad"];
  const end = (id) => {
    const e = byID(id), folded = e?.closest(".tiles"), shut = e?.closest("details:not([open])");
    return shut ? $("summary", shut) : folded ?? e;
  };
  const line = (from, to, tone, ids) => {
    const a = end(from), b = end(to);
    if (!a || !b) return;
    const key = (a.dataset.id ?? a.parentNode.dataset.group) + ">" + (b.dataset.id ?? b.parentNode.dataset.group) + (a.dataset.id && b.dataset.id ? "" : tone);
    const known = lines.get(key);
    if (!known) return lines.set(key, { a, b, tone, ids: new Set(ids), count: 1 });
    known.count++;
    ids.forEach((i) => known.ids.add(i));
    if (tones.indexOf(tone) > tones.indexOf(known.tone)) known.tone = tone;
  };
  for (const s of view.services) for (const t of s.targets ?? []) if (t.id) line(s.id, t.id, t.tone, [s.id, t.id]);
  for (const r of view.table.routes) if (r.node) line(r.node, r.id, r.tone, [r.id, r.node]);
  const hot = pointed || chosen;
  let some = false;
  svg.replaceChildren(...[...lines.values()].map(({ a, b, tone, ids, count }) => {
    const p = a.getBoundingClientRect(), q = b.getBoundingClientRect();
    const x1 = p.right - box.left, y1 = p.top + Math.min(p.height / 2, 40) - box.top, x2 = q.left - box.left, y2 = q.top + Math.min(q.height / 2, 40) - box.top, bend = Math.max(24, (x2 - x1) / 2);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
    if (count > 1) path.style.strokeWidth = Math.min(8, 1.5 + Math.log2(count));
    const is = hot && ids.has(hot);
    some ||= is;
    path.setAttribute("class", tone + (is ? " hot" : ""));
    return path;
  }));
  svg.classList.toggle("some", Boolean(some));
}

// point dims what has nothing to do with a Service, and rings its targets.
function point() {
  const s = view?.services.find((s) => s.id === (pointed || chosen));
  const targets = new Map((s?.targets ?? []).map((t) => [t.id, t.tone]));
  for (const e of all("#machines [data-id]")) {
    const tone = targets.get(e.dataset.id);
    e.classList.toggle("dim", targets.size > 0 && !tone);
    e.classList.toggle("ring", Boolean(tone) && e.classList.contains("tile") && tone !== "ok");
  }
  for (const e of all("[aria-pressed]")) e.setAttribute("aria-pressed", String(e.dataset.id === chosen));
}

// rove leaves one of a list's elements to the Tab key; arrows move among them.
function rove(box) {
  const items = all("[data-id],[data-to],.finding", box);
  if (items.length && !items.some((e) => e.tabIndex === 0)) items[0].tabIndex = 0;
  for (const e of items.filter((e) => e.tabIndex === 0).slice(1)) e.tabIndex = -1;
}

function move(box, from, key) {
  const items = all("[data-id],[data-to],.finding", box).filter((e) => e.offsetParent);
  const i = items.indexOf(from), at = (e) => { const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
  let to;
  if (key === "Home") to = items[0];
  else if (key === "End") to = items.at(-1);
  else if (key === "ArrowRight") to = items[i + 1];
  else if (key === "ArrowLeft") to = items[i - 1];
  else {
    const [x, y] = at(from), sign = key === "ArrowDown" ? 1 : -1;
    const beyond = items.map((e) => [e, ...at(e)]).filter(([, , v]) => (v - y) * sign > 4);
    to = beyond.sort((a, b) => (Math.abs(a[2] - y) + Math.abs(a[1] - x) * 2) - (Math.abs(b[2] - y) + Math.abs(b[1] - x) * 2))[0]?.[0];
  }
  if (to) focusOn(to, box);
}

function focusOn(e, box = e.closest("[data-keys]")) {
  e.closest("details")?.setAttribute("open", "");
  if (box) all("[tabindex='0']", box).forEach((o) => o.matches("[data-id],[data-to],.finding") && (o.tabIndex = -1));
  e.tabIndex = 0;
  e.focus({ preventScroll: true });
  e.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

// choose opens the timeline of a Node or a Service; of a route, that of its Node.
function choose(id) {
  const route = view.table.routes.find((r) => r.id === id);
  id = route ? route.node : id;
  if (!id || !/^(node|service)\//.test(id)) return;
  chosen = id;
  point();
  links();
  inspect(id, false);
}

function close() {
  const was = chosen;
  chosen = "";
  $("#detail").hidden = true;
  point();
  links();
  if (was && byID(was)) focusOn(byID(was));
}

async function inspect(id, again) {
  const box = $("#detail"), body = $(".body", box);
  $("#h-detail").textContent = id.replace(/^node\/([^/]*).*/, "Node $1").replace(/^service\//, "Service ");
  if (!again) {
    body.replaceChildren(span("sub", "looking…"));
    box.hidden = false;
    box.scrollIntoView({ block: "nearest" });
  }
  let told;
  try {
    told = await (await fetch("inspect?id=" + encodeURIComponent(id))).json();
  } catch (e) {
    told = { error: "underlayctl does not answer" };
  }
  if (chosen !== id) return;
  const text = JSON.stringify(told);
  if (again && body.source === text) return;
  body.source = text;
  if (told.error) return body.replaceChildren(span("why", told.error));
  let day = "";
  const entry = (t) => {
    const [date, clock] = t.time.slice(0, 19).split("T"), head = date === day ? "" : date + " ";
    day = date;
    return el("li", {}, mark(t.bad ? "bad" : "ok"), el("time", { datetime: t.time }, head + clock), span("source", t.source + " "), span(t.bad ? "bad-text" : "", t.what));
  };
  body.replaceChildren(
    el("dl", {}, told.facts.flatMap((f) => [el("dt", {}, f.name), el("dd", {}, f.value)])),
    el("h3", {}, "What happened, in UTC"), el("ol", { class: "time" }, told.timeline.map(entry)),
    ...(told.notSeen ?? []).map((n) => span("sub", "Not seen: " + n)));
}

// Searching: the server finds, arrows choose, Enter opens.
let asked = 0;
async function search() {
  const text = $("#find").value.trim(), list = $("#hits"), mine = ++asked;
  if (!text) return hits([], 0);
  try {
    const found = await (await fetch("find?q=" + encodeURIComponent(text))).json();
    if (mine === asked) hits(found.hits, found.all);
  } catch (e) {
    list.hidden = true;
  }
}
function hits(found, count) {
  const list = $("#hits"), input = $("#find");
  list.replaceChildren(...found.map((h, i) => el("li", { role: "option", id: "hit-" + i, "data-hit": h.id, "aria-selected": String(i === 0) }, h.title, span("", h.why))));
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
  const box = event.target.closest?.("[data-keys]");
  if (event.key === "/") { event.preventDefault(); $("#find").focus(); }
  else if (event.key === "Escape" && chosen) close();
  else if (box && /^(Arrow|Home|End)/.test(event.key)) { event.preventDefault(); move(box, event.target, event.key); }
});
document.addEventListener("click", (event) => {
  const e = event.target.closest("[data-id],[data-to]");
  if (event.target.closest("#close")) close();
  else if (e?.dataset.id) { focusOn(e); e.dataset.id === chosen ? close() : choose(e.dataset.id); }
  else if (e?.dataset.to) { const to = byID(e.dataset.to); to?.scrollIntoView({ block: "center" }); choose(e.dataset.to); }
});
const hover = (event) => {
  const id = event.target.closest?.("#picture [data-id]")?.dataset.id ?? "";
  if (id === pointed) return;
  pointed = id;
  point();
  links();
};
document.addEventListener("pointerover", hover);
document.addEventListener("focusin", hover);
new ResizeObserver(links).observe($("#picture"));

// The stream comes again by itself when it broke. While nobody can see the page there is
// none, so that a forgotten tab costs no requests.
let stream;
const live = (text, lost) => { const e = $("#live"); if (e.textContent !== text) e.textContent = text; e.classList.toggle("lost", lost); };
function follow() {
  stream?.close();
  if (document.hidden) return;
  live("connecting…", false);
  stream = new EventSource("stream");
  stream.onmessage = (event) => { const m = JSON.parse(event.data); show(m); live(m.trouble ? "not up to date" : m.view ? "live" : "looking…", Boolean(m.trouble)); };
  // A window too many is told so and left, and asks again until another is closed.
  let full = false;
  stream.addEventListener("full", () => { full = true; });
  stream.onerror = () => { live(full ? "too many windows are open: close some" : "underlayctl has ended", true); full = false; };
}
document.addEventListener("visibilitychange", follow);
follow();
