// Elements of HTML and SVG. Names by users are inserted as text, never as HTML.

const areAttributes = (part) => part?.constructor === Object;

function made(tag, parts) {
  const attributes = areAttributes(parts[0]) ? parts.shift() : [];
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) tag.addEventListener(name.slice(2), value);
    else if (value === true) tag.setAttribute(name, "");
    else if (value !== false && value != null) tag.setAttribute(name, value);
  }
  tag.append(...parts.flat(Infinity).filter((each) => each != null && each !== false));
  return tag;
}
// Each takes a tag, its attributes if it has any, and its children.
export const h = (tag, ...parts) => made(document.createElement(tag), parts);
export const s = (tag, ...parts) => made(document.createElementNS("http://www.w3.org/2000/svg", tag), parts);

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

export function section(id, title) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), h("div", { id: `${id}-body` }));
}

export const empty = (text) => h("p", { class: "empty" }, text);

// A column is a heading and the class of its cells; a cell is its content, or its attributes with the content as `text`.
export function table(columns, rows) {
  const heads = columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading));
  const lines = rows.map((cells) =>
    cells.map((cell, at) => {
      const { text, tone = "", ...attributes } = areAttributes(cell) ? cell : { text: cell };
      return h("td", { class: `${columns[at][1] ?? ""} ${tone}`.trim(), ...attributes }, text);
    }),
  );
  return h("div", { class: "scroll", tabindex: "0" }, h("table", h("thead", h("tr", heads)), h("tbody", lines.map((cells) => h("tr", cells)))));
}

export const picture = (width, height, label, ...parts) =>
  s("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": label }, ...parts);
export const rect = (x, y, width, height, attributes, ...parts) => s("rect", { x, y, width, height, ...attributes }, ...parts);
export const label = (x, y, anchor, text, kind = "soft") => s("text", { x, y, "text-anchor": anchor, class: kind }, text);
