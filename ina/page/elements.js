// Elements of HTML and SVG. Names by users are inserted as text, never as HTML.

function made(document_, tag, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) tag.addEventListener(name.slice(2), value);
    else if (value === true) tag.setAttribute(name, "");
    else if (value !== false && value != null) tag.setAttribute(name, value);
  }
  tag.append(...children.flat(Infinity).filter((each) => each != null && each !== false));
  return tag;
}
export const h = (tag, attributes, ...children) => made(document, document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) =>
  made(document, document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

export function replace(id, ...children) {
  const place = document.getElementById(id);
  const held = document.activeElement?.closest?.("[data-key]");
  const key = held && place.contains(held) ? held.dataset.key : null;
  const left = [...place.querySelectorAll(".scroll, .events")].map((each) => [each.scrollLeft, each.scrollTop]);
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  [...place.querySelectorAll(".scroll, .events")].forEach((each, number) => {
    if (left[number]) [each.scrollLeft, each.scrollTop] = left[number];
  });
  if (key) [...place.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus();
}

export function section(id, title, ...rest) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), h("div", { id: `${id}-body` }), ...rest);
}

export const empty = (text) => h("p", { class: "empty" }, text);

export function table(heads, lines) {
  const head = heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, lines)));
}
