// The overview: running jobs, waiting jobs with reasons, events.

import { at, view, WINDOWS } from "./state.js";
import { empty, h, replace, section, table } from "./elements.js";
import { BAD, bar, clock, count, jobLink, share, stateOf, tone, wall } from "./words.js";
import { due, eventList } from "./events.js";
import { clusterPicture, memoryMap } from "./pictures.js";
import { ask, attempt, request } from "./asking.js";

export const EVENTS = 200;

export function overview() {
  const pick = h(
    "select",
    { "aria-label": "Time shown", class: "end", onchange: (event) => ((view.window = event.target.value), view.redraw()) },
    Object.keys(WINDOWS).map((name) => h("option", { selected: name === view.window }, name)),
  );
  const parts = [
    h("section", { id: "tiles", class: "tiles", "aria-label": "In numbers" }),
    h("div", { class: "column" }, section("cluster", "Cluster"), section("memory", "Switch memory over time"), section("nodes", "Servers and switches")),
    h("div", { class: "column" }, section("jobs", "Running"), section("queue", "Queue"), section("events", "Events")),
    section("over", "Over"),
  ];
  document.getElementById("main").replaceChildren(...parts);
  document.getElementById("memory-title").append(pick);
}

export function drawOverview() {
  const { cluster, jobs } = at;
  const active = jobs.filter((job) => !job.over);
  const placed = active.filter((job) => job.state !== "queued");
  const waiting = active.filter((job) => job.state === "queued");
  const over = jobs.filter((job) => job.over);
  const states = (...names) => names.reduce((sum, name) => sum + (cluster.jobs[name] ?? 0), 0);
  const gpus = cluster.servers.reduce((sum, each) => sum + each.gpus, 0);
  const used = cluster.servers.reduce((sum, each) => sum + each.used, 0);
  const slots = cluster.switches.reduce((sum, each) => sum + each.slots, 0);
  const free = cluster.switches.reduce((sum, each) => sum + each.free, 0);
  const late = active.filter((job) => job.late).length;
  const failed = states(...BAD);
  const tile = (number, text, kind) => h("div", h("b", { class: kind }, number), h("span", text));
  replace(
    "tiles",
    tile(count(states("starting", "running", "stopping")), "running"),
    tile(count(states("queued")), "waiting"),
    tile(`${used} / ${gpus}`, "GPUs in use"),
    tile(slots ? `${Math.round((100 * (slots - free)) / slots)} %` : "–", "switch slots held"),
    tile(count(late), "late, by estimate", late ? "warn" : ""),
    tile(count(failed), "failed, missed, refused", failed ? "bad" : ""),
  );
  replace("cluster-body", clusterPicture());
  replace("jobs-body", placed.length ? jobTable(placed) : empty("No job runs."));
  const more = states("queued") - waiting.length;
  replace("queue-body", waiting.length ? queueTable(waiting) : empty("No job waits."), more > 0 ? empty(`and ${count(more)} more`) : null);
  replace("memory-body", memoryMap());
  replace("nodes-body", nodeTable());
  replace("events-body", eventList(at.events.slice(-EVENTS).reverse()));
  replace("over-body", over.length ? overTable(over.slice(-50).reverse()) : empty("No job is over."));
}


function jobTable(jobs) {
  const { now_s } = at.cluster;
  const slots = (job) => Object.values(job.slots).map((each) => each.slots);
  return table(
    [["job", "name"], ["state", "state wide"], ["progress"], ["ends in", "number"], ["deadline", "number"], ["slots", "number wide"], ["fallback", "number wide"], ["servers", "wide"]],
    jobs.map((job) => [
      jobLink(job.id, "jobs"),
      { text: stateOf(job), tone: tone(stateOf(job)) },
      { text: bar(job.done / job.iterations, job.id), title: `${count(Math.floor(job.done))} of ${count(job.iterations)} iterations` },
      job.ends_s == null ? "" : { text: clock(job.ends_s - now_s), title: wall(job.ends_s) },
      due(job),
      slots(job).length ? count(Math.max(...slots(job))) : "–",
      { text: share(job.fallback_share), title: "Part of its packets that found no slot, and went to the fallback server" },
      [...new Set(job.servers)].join(", "),
    ]),
  );
}

function queueTable(jobs) {
  const { now_s } = at.cluster;
  return table(
    [["job", "name"], ["GPUs", "number wide"], ["waits for", "number wide"], ["deadline", "number"], ["why", "why"]],
    jobs.map((job) => [jobLink(job.id, "queue"), job.gpus, clock(now_s - job.submitted_s), due(job), job.reason || "–"]),
  );
}

function overTable(jobs) {
  const { now_s } = at.cluster;
  return table(
    [["job", "name"], ["outcome", "state"], ["ended", "number"], ["took", "number"], ["why"]],
    jobs.map((job) => [
      jobLink(job.id, "over"),
      { text: stateOf(job), tone: tone(stateOf(job)) },
      job.ended_s == null ? "" : `${clock(now_s - job.ended_s)} ago`,
      job.ended_s == null ? "" : clock(job.ended_s - job.submitted_s),
      { text: job.reason, tone: job.reason && "why" },
    ]),
  );
}

function nodeTable() {
  const line = (node, kind, part, whole, unit) => [
    node.name,
    kind,
    whole ? `${count(part)} / ${count(whole)} ${unit}` : "–",
    { text: node.down || "in use", tone: node.down ? "bad" : "good" },
    drainButton(node),
  ];
  return table(
    [["name", "name"], ["kind", "wide"], ["held", "number"], ["state"], ["", "number"]],
    [
      ...at.cluster.switches.map((each) => line(each, "switch", each.slots - each.free, each.slots, "slots")),
      ...at.cluster.servers.map((each) => line(each, each.role === "worker" ? "server" : `server, ${each.role}`, each.used, each.gpus, "GPUs")),
    ],
  );
}

function drainButton(node) {
  if (!at.cluster.operates) return null;
  const back = node.down.startsWith("drained");
  const text = back
    ? `Jobs may use ${node.name} again.`
    : `No new job starts on ${node.name}; jobs that use it are moved, or wait.`;
  const act = async () => {
    if (!(await ask(back ? `Use ${node.name} again?` : `Drain ${node.name}?`, text))) return;
    await attempt(() => request(`/v1/nodes/${encodeURIComponent(node.name)}/${back ? "undrain" : "drain"}`, "POST"));
  };
  return h("button", { type: "button", onclick: act, "data-key": `drain:${node.name}`, "aria-label": `${back ? "Undrain" : "Drain"} ${node.name}` }, back ? "Undrain" : "Drain");
}
