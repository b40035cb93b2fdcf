// Finds and makes elements of the page.

export const $ = (selector, from = document) => from.querySelector(selector);
export const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const words = { ok: "well", wait: "waits", bad: "trouble", off: "not seen, or others'" };

// el makes an element; children are elements, or text, or nothing.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}
export const span = (name, ...children) => el("span", { class: name }, ...children);
export const mark = (tone) => el("i", { class: "mark " + tone, role: "img", "aria-label": words[tone] });

// keep makes children of a parent one for each item, in their order, and no more. An
// element whose item is as before stays, and with it what is open in it.
export function keep(parent, items, make, keyOf = (item, i) => item.id ?? String(i)) {
  const old = new Map([...parent.children].map((e) => [e.dataset.key, e]));
  const focused = document.activeElement?.dataset?.id, first = old.size === 0;
  items.forEach((item, i) => {
    const key = keyOf(item, i), text = JSON.stringify(item);
    let e = old.get(key);
    if (e?.source === text) old.delete(key);
    else {
      e = make(item);
      e.dataset.key = key;
      e.source = text;
      if (!first) e.classList.add("fresh");
    }
    if (parent.children[i] !== e) parent.insertBefore(e, parent.children[i] ?? null);
  });
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  if (focused && document.activeElement === document.body) {
    const e = byID(focused);
    if (e) e.tabIndex = 0;
    e?.focus({ preventScroll: true });
  }
}
export const byID = (id) => $(`[data-id="${CSS.escape(id)}"]`);
export const sentence = (...parts) => parts.flat().filter(Boolean).join(", ");
