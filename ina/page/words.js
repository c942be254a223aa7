// Formats of times, numbers, names and states.

import { at, rows } from "./state.js";
import { h, rect, s } from "./elements.js";

export function clock(time_s) {
  if (time_s == null) return "";
  const sign = time_s < 0 ? "−" : "";
  let left = Math.abs(time_s);
  if (left < 60) return `${sign}${left.toFixed(left < 10 ? 1 : 0)} s`;
  left = Math.round(left);
  const [hours, minutes, seconds] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
  const two = (number) => String(number).padStart(2, "0");
  return sign + (hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`);
}
export const count = (number) => number.toLocaleString("en");
export const bytes = (number) =>
  number < 1e3 ? `${number} B` : number < 1e6 ? `${(number / 1e3).toFixed(1)} kB` : number < 1e9 ? `${(number / 1e6).toFixed(1)} MB` : `${(number / 1e9).toFixed(1)} GB`;
export const share = (part) => (part == null ? "–" : `${(100 * part).toFixed(part && part < 0.1 ? 1 : 0)} %`);
export const wall = (time_s) => new Date((at.cluster.began_at + time_s) * 1000).toLocaleString();
export const color = (name) => `hsl(${((rows.get(name)?.number ?? 0) * 137.5 + 200) % 360} 48% 55%)`;
const way = (name) => `#/jobs/${encodeURIComponent(name)}`;
export const whose = (name) => name || "another tenant’s job";
const GOOD = new Set(["running", "completed"]);
export const BAD = new Set(["failed", "missed", "refused"]);
export const tone = (state) => (GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : state === LATE ? "warn" : "soft");
const LATE = "completed late";
export const stateOf = (job) => (job.state === "completed" && job.late ? LATE : job.state);

export function jobLink(name, key = "") {
  if (!name) return h("span", { class: "soft" }, whose(name));
  const dot = s("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" }, rect(0, 0, 10, 10, { fill: color(name) }));
  return h("a", { href: way(name), title: name, "data-key": `${key}:${name}` }, dot, name);
}

export function bar(part, name) {
  const share = Math.max(0, Math.min(1, part));
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": `${Math.round(share * 100)} %` },
    rect(0, 0, 100, 6, { class: "idle", rx: 1 }),
    rect(0, 0, 100 * share, 6, { rx: 1, fill: color(name) }),
  );
}
