// Finds and makes elements of the page.

export const $ = (selector, from = document) => from.querySelector(selector);
export const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const words = { good: "well", warn: "waits", bad: "trouble", faint: "not seen, or others'" };

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
export const byID = (id) => $(`[data-id="${CSS.escape(id)}"]`);
