// The page of a job: its facts, decisions, times, tree, memory and output.

import { at, rows, view } from "./state.js";
import { empty, h, label, picture, rect, replace, s, section } from "./elements.js";
import { bar, bytes, clock, color, count, share, stateOf, tone } from "./words.js";
import { due, eventList } from "./events.js";
import { clusterPicture, drawn, memoryMap, plot } from "./pictures.js";
import { ask, attempt, request, stream } from "./asking.js";

let log = { text: "", stop: null }; // the output that is followed

const seen = (decision) => view.measured || decision.event !== "measured";

export const leaveJob = () => log.stop?.abort();

export function jobPage(name) {
  document.getElementById("main").replaceChildren(
    h("div", { class: "column" }, section("facts", name), section("time", "Time"), section("tree", "Tree")),
    h("div", { class: "column" }, section("why", "Explanation"), section("memory", "Its switch memory over time"), section("log", "Output")),
  );
}

export function drawJob(name) {
  const job = rows.get(name); // the address may have its name or number
  if (job) name = job.id;
  if (!job) {
    document.getElementById("main").replaceChildren(h("section", h("h2", "No such job"), empty(`There is no job ${name}, or it is another tenant’s.`)));
    return false;
  }
  const { now_s } = at.cluster;
  const fact = (term, value) => (value === "" || value == null ? [] : [h("dt", term), h("dd", value)]);
  const cancel = async () => {
    if (await ask(`Cancel ${name}?`, "Its workers end; what its program has saved stays.")) await attempt(() => request(`/v1/jobs/${encodeURIComponent(name)}`, "DELETE"));
  };
  const again = () => attempt(() => request(`/v1/jobs/${encodeURIComponent(name)}/retry`, "POST"));
  const action = !job.over
    ? h("button", { type: "button", onclick: cancel, "data-key": "cancel" }, "Cancel")
    : job.state === "failed" && !job.external
      ? h("button", { type: "button", onclick: again, "data-key": "retry" }, "Retry")
      : null;
  replace(
    "facts-body",
    h(
      "dl",
      fact("state", h("span", { class: tone(stateOf(job)) }, stateOf(job))),
      fact("why", job.reason),
      fact("progress", [bar(job.done / job.iterations, name), `${count(Math.floor(job.done))} of ${count(job.iterations)} iterations`]),
      fact("ends", job.ends_s == null ? "" : `in ${clock(Math.max(0, job.ends_s - now_s))}, by estimate`),
      fact("deadline", job.due_s == null ? "best effort" : due(job)),
      fact("command", h("code", job.command.join(" "))),
      fact("workers", `${job.workers}, ${job.gpus} GPUs`),
      fact("gradient", bytes(job.model_bytes)),
      fact("servers", [...new Set(job.servers)].join(", ")),
      fact("slots", Object.entries(job.slots).map(([where, each]) => `${count(each.slots)} at ${where}`).join(", ")),
      fact("standing", job.standing),
      fact("fallback", job.fallback && `${job.fallback}; ${job.fallback_share == null ? "share not known yet" : `${share(job.fallback_share)} of its packets went there`}`),
      fact("tenant", job.tenant),
      fact("started", job.starts > 1 ? `${job.starts} times` : ""),
    ),
    h("p", { class: "buttons" }, action),
  );
  replace("time-body", timeline(job), slotsPlot(name));
  const explanation = at.explanation?.job.id === name ? at.explanation : null;
  replace(
    "why-body",
    explanation?.advice.length ? h("ul", { class: "plain" }, explanation.advice.map((each) => h("li", each))) : null,
    explanation ? eventList(explanation.decisions.filter(seen), name) : empty("Loading."),
    explanation && !explanation.decisions.every((each) => each.event !== "measured")
      ? h("label", h("input", { type: "checkbox", "data-key": "measured", checked: view.measured, onchange: (event) => ((view.measured = event.target.checked), view.redraw()) }), " with what was measured")
      : null,
  );
  replace("tree-body", job.tree ? clusterPicture(name) : empty(job.over ? "It is over." : "It uses no tree now."));
  replace("memory-body", memoryMap(name));
  drawLog(job);
  return true;
}

function timeline(job) {
  const { now_s } = at.cluster;
  const last = Math.max(job.ended_s ?? now_s, job.ends_s ?? 0, job.over ? 0 : job.due_s ?? 0, job.submitted_s + 1);
  const [width, height] = [drawn(), 62];
  const x = (time_s) => 4 + ((width - 8) * (time_s - job.submitted_s)) / (last - job.submitted_s);
  const piece = (from, to, attributes, what) => rect(x(from), 20, Math.max(0, x(to) - x(from)), 16, attributes, s("title", `${what}: ${clock(to - from)}`));
  const start = job.started_s ?? job.ended_s ?? now_s;
  const until = job.ended_s ?? now_s;
  const left = job.ends_s != null ? `${clock(job.ends_s - now_s)} to go` : "";
  const due_x = x(job.due_s);
  return picture(
    width,
    height,
    `waited ${clock(start - job.submitted_s)}, since its start ${clock(until - start)}`,
    piece(job.submitted_s, start, { class: "idle" }, "waited"),
    piece(start, until, { fill: color(job.id) }, "since its start"),
    job.ends_s != null && piece(now_s, job.ends_s, { fill: color(job.id), opacity: 0.35 }, "to go"),
    label(4, 52, "start", `waited ${clock(start - job.submitted_s)}`),
    label(width - 4, 52, "end", job.over ? `ended after ${clock(until - job.submitted_s)}` : left),
    job.due_s != null && due_x <= width
      ? [s("line", { x1: due_x, x2: due_x, y1: 14, y2: 42, class: "mark" }), label(Math.min(width - 4, Math.max(50, due_x)), 10, due_x > width / 2 ? "end" : "middle", "deadline", "marktext")]
      : null,
  );
}

function slotsPlot(name) {
  const { memory } = at;
  const lines = [];
  let most = 1;
  for (const [where, moments] of Object.entries(memory.switches)) {
    const points = moments.map((moment) => [moment.at_s, moment.shares.filter((share) => share.job === name).reduce((sum, share) => sum + share.slots, 0)]);
    if (!points.some(([, slots]) => slots)) continue;
    most = Math.max(most, ...points.map(([, slots]) => slots));
    lines.push([where, points]);
  }
  if (!lines.length) return null;
  const begin = Math.max(memory.since_s, rows.get(name).submitted_s);
  const end = Math.max(memory.now_s, begin + 1);
  const line = (points, x, y) => {
    const path = points.filter((_, index) => (points[index + 1]?.[0] ?? end) >= begin);
    const steps = path.map(([time_s, slots], index) => `${index ? `H${x(time_s)}V` : `M${x(time_s)} `}${y(slots)}`).join("");
    return `${steps}H${x(end)}`;
  };
  const styles = [["solid", ""], ["dashed", "6 3"], ["dotted", "2 3"], ["dash-dotted", "8 3 2 3"]];
  return h(
    "figure",
    { class: "map" },
    h("h3", "Slots at each switch"),
    plot(begin, end, most, 118, "slots at each switch over time", (x, y) => [
      s("line", { x1: x(begin), x2: x(end), y1: y(0), y2: y(0), class: "axis" }),
      lines.map(([, points], number) =>
        s("path", { d: line(points, x, y), fill: "none", stroke: color(name), "stroke-width": 2, "stroke-dasharray": styles[number % styles.length][1] }),
      ),
    ]),
    h("ul", { class: "legend" }, lines.map(([where], number) => h("li", styles[number % styles.length][0], ": ", where))),
  );
}

function drawLog(job) {
  const body = document.getElementById("log-body");
  if (!body.firstChild) {
    const pick = h("select", { "aria-label": "Rank", class: "end", onchange: (event) => follow(job.id, Number(event.target.value)) }, Array.from({ length: Math.min(job.workers, 1024) }, (_, rank) => h("option", { value: rank }, `rank ${rank}`)));
    document.getElementById("log-title").append(pick);
    body.append(h("pre", { id: "log-text", tabindex: "0", "aria-label": "Output of the rank" }));
    follow(job.id, 0);
  }
}

async function follow(name, rank) {
  log.stop?.abort();
  const stop = new AbortController();
  log = { text: "", stop };
  const place = document.getElementById("log-text");
  place.textContent = "";
  try {
    await stream(`/v1/jobs/${encodeURIComponent(name)}/logs/${rank}?follow=true&offset=-65536`, stop.signal, (data) => {
      if (data.text === undefined) return;
      const low = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
      log.text = (log.text + data.text).slice(-131072);
      place.textContent = log.text;
      if (low) place.scrollTop = place.scrollHeight;
    });
    if (!log.text) place.textContent = "Nothing was written.";
  } catch (error) {
    if (!stop.signal.aborted) place.textContent = `Not available: ${error.message}`;
  }
}
