// The operator's page: asks /v1 like any other client. What people named is put in as text, never as HTML.
"use strict";

const EVERY_MS = 5000; // progress is asked for this often while nothing is decided
const SOON_MS = 1000; // and this soon after a decision
const EVENTS = 200;
const QUEUE = 100;
const LATEST = 200;
const WINDOWS = { "5 min": 300, "1 h": 3600, "all": Infinity };

const at = { cluster: null, jobs: [], memory: null, events: [], explanation: null };
const rows = new Map(); // jobs by name
let token = ""; // kept here alone, until the page is left
let windowName = "5 min";
let shown = ""; // of which page the content is
let log = { key: "", text: "", stop: null };

// ---------------------------------------------------------------- elements

function made(document_, tag, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) tag.addEventListener(name.slice(2), value);
    else if (value === true) tag.setAttribute(name, "");
    else if (value !== false && value != null) tag.setAttribute(name, value);
  }
  tag.append(...children.flat(Infinity).filter((each) => each != null && each !== false));
  return tag;
}
const h = (tag, attributes, ...children) => made(document, document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  made(document, document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function replace(id, ...children) {
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

// ---------------------------------------------------------------- words

function clock(time_s) {
  if (time_s == null) return "";
  const sign = time_s < 0 ? "−" : "";
  let left = Math.abs(time_s);
  if (left < 60) return `${sign}${left.toFixed(left < 10 ? 1 : 0)} s`;
  left = Math.round(left);
  const [hours, minutes, seconds] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
  const two = (number) => String(number).padStart(2, "0");
  return sign + (hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`);
}
const count = (number) => number.toLocaleString("en");
const bytes = (number) =>
  number < 1e3 ? `${number} B` : number < 1e6 ? `${(number / 1e3).toFixed(1)} kB` : number < 1e9 ? `${(number / 1e6).toFixed(1)} MB` : `${(number / 1e9).toFixed(1)} GB`;
const wall = (time_s) => new Date((at.cluster.began_at + time_s) * 1000).toLocaleString();
const color = (name) => `hsl(${((rows.get(name)?.number ?? 0) * 137.5 + 200) % 360} 48% 55%)`;
const way = (name) => `#/jobs/${encodeURIComponent(name)}`;
const whose = (name) => name || "another tenant’s job";
const GOOD = new Set(["running", "completed"]);
const BAD = new Set(["failed", "missed", "refused"]);
const tone = (state) => (GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : "soft");

function jobLink(name, key = "") {
  if (!name) return h("span", { class: "soft" }, whose(name));
  const dot = s("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { width: 10, height: 10, fill: color(name) }));
  return h("a", { href: way(name), title: name, "data-key": `${key}:${name}` }, dot, name);
}

function bar(part, name) {
  const share = Math.max(0, Math.min(1, part));
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": `${Math.round(share * 100)} %` },
    s("rect", { class: "whole", width: 100, height: 6, rx: 1 }),
    s("rect", { width: 100 * share, height: 6, rx: 1, fill: color(name) }),
  );
}

function section(id, title, ...rest) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), h("div", { id: `${id}-body` }), ...rest);
}

// ---------------------------------------------------------------- overview

function overview() {
  const pick = h(
    "select",
    { "aria-label": "Time shown", class: "end", onchange: (event) => ((windowName = event.target.value), draw()) },
    Object.keys(WINDOWS).map((name) => h("option", { selected: name === windowName }, name)),
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

function drawOverview() {
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
  const tile = (number, text, kind) => h("div", {}, h("b", { class: kind }, number), h("span", {}, text));
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

const empty = (text) => h("p", { class: "empty" }, text);
function table(heads, lines) {
  const head = heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, lines)));
}

function due(job) {
  const { now_s } = at.cluster;
  if (job.due_s == null) return h("span", { class: "soft" }, "best effort");
  const left_s = job.due_s - now_s;
  const text = job.over ? wall(job.due_s) : left_s < 0 ? `${clock(-left_s)} ago` : `in ${clock(left_s)}${job.late ? ", late" : ""}`;
  return h("span", { class: !job.over && (job.late || left_s < 0) ? "warn" : "", title: wall(job.due_s) }, text);
}

function jobTable(jobs) {
  const { now_s } = at.cluster;
  return table(
    [["job"], ["state", "wide"], ["progress"], ["ends in", "number"], ["deadline", "number"], ["slots", "number wide"], ["servers", "wide"]],
    jobs.map((job) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, jobLink(job.name, "jobs")),
        h("td", { class: `state wide ${tone(job.state)}` }, job.state),
        h("td", { title: `${count(Math.floor(job.done))} of ${count(job.iterations)} iterations` }, bar(job.done / job.iterations, job.name)),
        h("td", { class: "number", title: job.ends_s == null ? null : wall(job.ends_s) }, clock(job.ends_s == null ? null : job.ends_s - now_s)),
        h("td", { class: "number" }, due(job)),
        h("td", { class: "number wide" }, Object.values(job.slots).length ? count(Math.max(...Object.values(job.slots).map((each) => each.slots))) : "–"),
        h("td", { class: "wide" }, [...new Set(job.servers)].join(", ")),
      ),
    ),
  );
}

function queueTable(jobs) {
  const { now_s } = at.cluster;
  return table(
    [["job"], ["GPUs", "number wide"], ["waits for", "number wide"], ["deadline", "number"], ["why"]],
    jobs.map((job) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, jobLink(job.name, "queue")),
        h("td", { class: "number wide" }, job.gpus),
        h("td", { class: "number wide" }, clock(now_s - job.submitted_s)),
        h("td", { class: "number" }, due(job)),
        h("td", { class: "why" }, job.reason || "–"),
      ),
    ),
  );
}

function overTable(jobs) {
  const { now_s } = at.cluster;
  return table(
    [["job"], ["outcome"], ["ended", "number"], ["took", "number"], ["why"]],
    jobs.map((job) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, jobLink(job.name, "over")),
        h("td", { class: `state ${tone(job.state)}` }, job.state),
        h("td", { class: "number" }, job.ended_s == null ? "" : `${clock(now_s - job.ended_s)} ago`),
        h("td", { class: "number" }, job.ended_s == null ? "" : clock(job.ended_s - job.submitted_s)),
        h("td", { class: job.reason ? "why" : "" }, job.reason),
      ),
    ),
  );
}

function nodeTable() {
  const line = (node, kind, part, whole, unit) =>
    h(
      "tr",
      {},
      h("td", { class: "name" }, node.name),
      h("td", { class: "wide" }, kind),
      h("td", { class: "number" }, whole ? `${count(part)} / ${count(whole)} ${unit}` : "–"),
      h("td", {}, node.down ? h("span", { class: "bad" }, node.down) : h("span", { class: "good" }, "in use")),
      h("td", { class: "number" }, drainButton(node)),
    );
  return table(
    [["name"], ["kind", "wide"], ["held", "number"], ["state"], ["", "number"]],
    [
      at.cluster.switches.map((each) => line(each, "switch", each.slots - each.free, each.slots, "slots")),
      at.cluster.servers.map((each) => line(each, each.role === "worker" ? "server" : `server, ${each.role}`, each.used, each.gpus, "GPUs")),
    ].flat(),
  );
}

function drainButton(node) {
  const back = Boolean(node.down);
  const text = back
    ? `Jobs may use ${node.name} again.`
    : `No new job starts on ${node.name}; jobs that use it are moved, or wait.`;
  const act = async () => {
    if (!(await ask(back ? `Use ${node.name} again?` : `Drain ${node.name}?`, text))) return;
    await attempt(() => request(`/v1/nodes/${encodeURIComponent(node.name)}/${back ? "undrain" : "drain"}`, "POST"));
  };
  return h("button", { type: "button", onclick: act, "data-key": `drain:${node.name}`, "aria-label": `${back ? "Undrain" : "Drain"} ${node.name}` }, back ? "Undrain" : "Drain");
}

function eventList(events, about = null) {
  if (!events.length) return empty("Nothing has happened yet.");
  return h(
    "ol",
    { class: "events", tabindex: "0", "aria-label": "Events, latest first" },
    events.map((each) =>
      h(
        "li",
        {},
        h("time", { title: wall(each.at_s) }, clock(each.at_s)),
        h("span", { class: ["failed", "missed", "refused", "gone", "interrupted"].includes(each.event) ? "bad" : "soft" }, each.event),
        h("p", {}, named(each, about), each.text),
      ),
    ),
  );
}

function named(decision, about) {
  if (!decision.jobs.length || (decision.jobs.length === 1 && decision.jobs[0] === about)) return null;
  return [decision.jobs.map((name, number) => [number ? ", " : "", jobLink(name, `event${decision.number}`)]), ": "];
}

// ---------------------------------------------------------------- pictures

function layers() {
  // Servers below, switches above by their distance from servers.
  const { switches, servers, links } = at.cluster;
  const isSwitch = new Set(switches.map((each) => each.name));
  const level = new Map(servers.map((each) => [each.name, 0]));
  let next = servers.map((each) => each.name);
  while (next.length) {
    const found = [];
    for (const { a, b } of links)
      for (const [one, other] of [[a, b], [b, a]])
        if (next.includes(one) && isSwitch.has(other) && !level.has(other)) {
          level.set(other, level.get(one) + 1);
          found.push(other);
        }
    next = found;
  }
  for (const each of switches) if (!level.has(each.name)) level.set(each.name, 1);
  return level;
}

function clusterPicture(only = null) {
  const { switches, servers, links } = at.cluster;
  const level = layers();
  const rank = [...new Set(level.values())].sort((one, other) => one - other);
  const names = rank.map((each) => [...level].filter(([, of]) => of === each).map(([name]) => name));
  const width = Math.max(420, 84 * Math.max(...names.map((each) => each.length)));
  const height = 78 * rank.length + 4;
  const place = new Map();
  names.forEach((row, up) => row.forEach((name, number) => place.set(name, [(width * (number + 0.5)) / row.length, height - 42 - 78 * up])));
  const shownJobs = at.jobs.filter((job) => !job.over && (!only || job.name === only));
  const treeLinks = new Map();
  for (const job of shownJobs) {
    if (!job.tree) continue;
    const inTree = new Set([job.tree.root, ...Object.keys(job.tree.parents)]);
    for (const [child, parent] of Object.entries(job.tree.parents)) push(treeLinks, `${child}|${parent}`, job.name);
    for (const { a, b } of links)
      for (const [one, other] of [[a, b], [b, a]])
        if (job.servers.includes(one) && inTree.has(other)) push(treeLinks, `${one}|${other}`, job.name);
  }
  const lines = links.map(({ a, b }) => {
    const jobs = [...(treeLinks.get(`${a}|${b}`) ?? []), ...(treeLinks.get(`${b}|${a}`) ?? [])];
    const [[x1, y1], [x2, y2]] = [place.get(a), place.get(b)];
    if (!jobs.length) return s("line", { x1, y1, x2, y2, class: "link" });
    const across = Math.hypot(x2 - x1, y2 - y1);
    const [dx, dy] = [(-(y2 - y1) / across) * 3.5, ((x2 - x1) / across) * 3.5];
    return jobs.slice(0, 4).map((name, number) => {
      const by = number - (Math.min(jobs.length, 4) - 1) / 2;
      return s("line", { x1: x1 + dx * by, y1: y1 + dy * by, x2: x2 + dx * by, y2: y2 + dy * by, class: "link used", stroke: color(name), "data-job": name });
    });
  });
  const boxes = [];
  for (const each of switches) {
    const [x, y] = place.get(each.name);
    const cells = [];
    for (const { share, from, to } of bands(each.shares))
      cells.push(s("rect", { x: x - 32 + (64 * from) / each.slots, y: y + 6, width: Math.max(0.5, (64 * (to - from)) / each.slots), height: 8, fill: share.job ? color(share.job) : "gray" }));
    boxes.push(
      s(
        "g",
        {},
        s("title", {}, `${each.name}: ${count(each.slots - each.free)} of ${count(each.slots)} slots held${each.down ? `; ${each.down}` : ""}`),
        s("rect", { x: x - 38, y: y - 18, width: 76, height: 38, rx: 4, class: each.down ? "box down" : "box" }),
        s("text", { x, y: y - 2, "text-anchor": "middle" }, brief(each.name, 11)),
        s("rect", { x: x - 32, y: y + 6, width: 64, height: 8, class: "idle" }),
        cells,
      ),
    );
  }
  const onServer = new Map();
  for (const job of shownJobs) for (const server of job.servers) for (let gpu = 0; gpu < job.gpus / job.workers; gpu++) push(onServer, server, job.name);
  for (const each of servers) {
    const [x, y] = place.get(each.name);
    const has = onServer.get(each.name) ?? [];
    const cells = [];
    const many = Math.min(each.gpus, 16);
    const size = Math.min(9, 60 / Math.max(1, many) - 2);
    for (let gpu = 0; gpu < many; gpu++)
      cells.push(s("rect", { x: x - (many * (size + 2)) / 2 + gpu * (size + 2), y: y + 4, width: size, height: 9, rx: 1, class: has[gpu] ? "" : "idle", fill: has[gpu] ? color(has[gpu]) : null }));
    boxes.push(
      s(
        "g",
        {},
        s("title", {}, `${each.name}: ${each.used} of ${each.gpus} GPUs${has.length ? `: ${[...new Set(has)].join(", ")}` : ""}${each.down ? `; ${each.down}` : ""}`),
        s("rect", { x: x - 34, y: y - 18, width: 68, height: 38, rx: 12, class: each.down ? "box down" : "box" }),
        s("text", { x, y: y - 3, "text-anchor": "middle" }, brief(each.name, 10)),
        cells,
      ),
    );
  }
  const label = `${switches.length} switches and ${servers.length} servers; ${shownJobs.length} jobs. The table of servers and switches says the same.`;
  const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": label }, lines.flat(), boxes);
  picture.style.minWidth = `${Math.min(width, 1400) * 0.7}px`;
  picture.style.maxHeight = "26rem";
  return h("div", { class: "scroll" }, picture);
}

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}
const drawn = () => (innerWidth < 640 ? 340 : 640); // so that letters keep their size
const brief = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function bands(shares) {
  // Jobs that share a region are shown beside each other in it.
  const regions = new Map();
  for (const share of shares) push(regions, `${share.first}+${share.slots}`, share);
  return [...regions.values()].flatMap((jobs) =>
    jobs.map((share, number) => ({
      share,
      from: share.first + (share.slots * number) / jobs.length,
      to: share.first + (share.slots * (number + 1)) / jobs.length,
      among: jobs.length,
    })),
  );
}

function memoryMap(only = null) {
  const { memory } = at;
  const begin = Math.max(memory.since_s, memory.now_s - WINDOWS[windowName]);
  const end = Math.max(memory.now_s, begin + 1);
  const [width, height, left] = [drawn(), 70, 46];
  const x = (time_s) => left + ((width - left) * (Math.max(begin, Math.min(end, time_s)) - begin)) / (end - begin);
  const seen = new Set();
  const had = (moments) => !only || moments.some((moment) => moment.shares.some((share) => share.job === only));
  const all = Object.entries(memory.switches).filter(([, moments]) => had(moments));
  if (!all.length) return empty("It has had no slots since the service was started last.");
  const maps = all.map(([name, moments]) => {
    const slots = memory.slots[name];
    const y = (slot) => 2 + ((height - 4) * (slots - slot)) / slots;
    const cells = [];
    moments.forEach((moment, number) => {
      const until = moments[number + 1]?.at_s ?? end;
      if (until < begin) return;
      for (const { share, from, to, among } of bands(moment.shares)) {
        if (only && share.job !== only) continue;
        if (share.job) seen.add(share.job);
        const box = { x: x(moment.at_s), y: y(to), width: Math.max(0.6, x(until) - x(moment.at_s)), height: Math.max(0.6, y(from) - y(to)) };
        const what = `${whose(share.job)}: slots ${count(share.first)} to ${count(share.first + share.slots - 1)}${among > 1 ? `, shared by ${among}` : ""}, ${clock(moment.at_s)} to ${clock(until)}`;
        cells.push(s("rect", { ...box, fill: share.job ? color(share.job) : "gray" }, s("title", {}, what)));
        if (among > 1) cells.push(s("rect", { ...box, fill: "url(#hatch)", "pointer-events": "none" }));
      }
    });
    const now = at.cluster.switches.find((each) => each.name === name);
    const held = now ? now.slots - now.free : 0;
    return h(
      "div",
      { class: "map" },
      h("h3", {}, name, " ", h("small", {}, now?.down ? h("span", { class: "bad" }, now.down) : `${count(held)} of ${count(slots)} slots held now`)),
      s(
        "svg",
        { viewBox: `0 0 ${width} ${height + 12}`, width: "100%", role: "img", "aria-label": `${name}: who has had which slots` },
        s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }))),
        s("rect", { x: left, y: 2, width: width - left, height: height - 4, class: "idle" }),
        cells,
        s("text", { x: left - 6, y: 12, "text-anchor": "end", class: "soft" }, count(slots)),
        s("text", { x: left - 6, y: height - 2, "text-anchor": "end", class: "soft" }, "0"),
        s("text", { x: left, y: height + 10, class: "soft" }, `${clock(end - begin)} ago`),
        s("text", { x: width, y: height + 10, "text-anchor": "end", class: "soft" }, "now"),
      ),
    );
  });
  const legend = h("ul", { class: "legend" }, [...seen].slice(0, 24).map((name) => h("li", {}, jobLink(name, "legend"))), seen.size ? h("li", { class: "soft" }, "hatched: shared") : null);
  return [h("div", { class: "maps" }, maps), legend];
}

// ---------------------------------------------------------------- a job

function jobPage(name) {
  document.getElementById("main").replaceChildren(
    h("div", { class: "column" }, section("facts", name), section("time", "Time"), section("tree", "Tree")),
    h("div", { class: "column" }, section("why", "Explanation"), section("memory", "Its switch memory over time"), section("log", "Output")),
  );
}

function drawJob(name) {
  const job = rows.get(name);
  if (!job) {
    document.getElementById("main").replaceChildren(h("section", {}, h("h2", {}, "No such job"), empty(`There is no job ${name}, or it is another tenant’s.`)));
    shown = "";
    return;
  }
  const { now_s } = at.cluster;
  const fact = (term, value) => (value === "" || value == null ? [] : [h("dt", {}, term), h("dd", {}, value)]);
  const cancel = async () => {
    if (await ask(`Cancel ${name}?`, "Its workers end; what its program has saved stays.")) await attempt(() => request(`/v1/jobs/${encodeURIComponent(name)}`, "DELETE"));
  };
  const again = () => attempt(() => request(`/v1/jobs/${encodeURIComponent(name)}/retry`, "POST"));
  const action = !job.over
    ? h("button", { type: "button", onclick: cancel, "data-key": "cancel" }, "Cancel")
    : job.state === "failed"
      ? h("button", { type: "button", onclick: again, "data-key": "retry" }, "Retry")
      : null;
  replace(
    "facts-body",
    h(
      "dl",
      {},
      fact("state", h("span", { class: tone(job.state) }, job.state)),
      fact("why", job.reason),
      fact("progress", [bar(job.done / job.iterations, name), `${count(Math.floor(job.done))} of ${count(job.iterations)} iterations`]),
      fact("ends", job.ends_s == null ? "" : `in ${clock(job.ends_s - now_s)}, by estimate`),
      fact("deadline", job.due_s == null ? "best effort" : due(job)),
      fact("command", h("code", {}, job.command.join(" "))),
      fact("workers", `${job.workers}, ${job.gpus} GPUs`),
      fact("gradient", bytes(job.model_bytes)),
      fact("servers", [...new Set(job.servers)].join(", ")),
      fact("slots", Object.entries(job.slots).map(([where, each]) => `${count(each.slots)} at ${where}`).join(", ")),
      fact("standing", job.standing),
      fact("fallback", job.fallback),
      fact("tenant", job.tenant),
      fact("started", job.starts > 1 ? `${job.starts} times` : ""),
    ),
    h("p", { class: "buttons" }, action),
  );
  replace("time-body", timeline(job), slotsPlot(name));
  const explanation = at.explanation?.job.name === name ? at.explanation : null;
  replace(
    "why-body",
    explanation?.advice.length ? h("ul", { class: "plain" }, explanation.advice.map((each) => h("li", {}, each))) : null,
    explanation ? eventList(explanation.decisions, name) : empty("Loading."),
  );
  replace("tree-body", job.tree ? clusterPicture(name) : empty(job.over ? "It is over." : "It uses no tree now."));
  replace("memory-body", memoryMap(name));
  drawLog(job);
}

function timeline(job) {
  const { now_s } = at.cluster;
  const last = Math.max(job.ended_s ?? now_s, job.ends_s ?? 0, job.over ? 0 : job.due_s ?? 0, job.submitted_s + 1);
  const [width, height] = [drawn(), 62];
  const x = (time_s) => 4 + ((width - 8) * (time_s - job.submitted_s)) / (last - job.submitted_s);
  const piece = (from, to, attributes, what) => s("rect", { x: x(from), y: 20, width: Math.max(0, x(to) - x(from)), height: 16, ...attributes }, s("title", {}, `${what}: ${clock(to - from)}`));
  const start = job.started_s ?? job.ended_s ?? now_s;
  const until = job.ended_s ?? now_s;
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": `waited ${clock(start - job.submitted_s)}, since its start ${clock(until - start)}` },
    piece(job.submitted_s, start, { class: "idle" }, "waited"),
    piece(start, until, { fill: color(job.name) }, "since its start"),
    job.ends_s != null ? piece(now_s, job.ends_s, { fill: color(job.name), opacity: 0.35 }, "to go") : null,
    s("text", { x: 4, y: 52, class: "soft" }, `waited ${clock(start - job.submitted_s)}`),
    s("text", { x: width - 4, y: 52, "text-anchor": "end", class: "soft" }, job.over ? `ended after ${clock(until - job.submitted_s)}` : job.ends_s != null ? `${clock(job.ends_s - now_s)} to go` : ""),
    job.due_s != null && x(job.due_s) <= width
      ? [s("line", { x1: x(job.due_s), x2: x(job.due_s), y1: 14, y2: 42, class: "mark" }), s("text", { x: Math.min(width - 4, Math.max(50, x(job.due_s))), y: 10, "text-anchor": x(job.due_s) > width / 2 ? "end" : "middle", class: "marktext" }, "deadline")]
      : null,
  );
}

function slotsPlot(name) {
  const { memory } = at;
  const [width, height, left] = [drawn(), 130, 46];
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
  const x = (time_s) => left + ((width - left) * (Math.max(begin, time_s) - begin)) / (end - begin);
  const y = (slots) => 6 + ((height - 24) * (most - slots)) / most;
  const dashes = ["", "6 3", "2 3", "8 3 2 3"];
  return h(
    "figure",
    { class: "map" },
    h("h3", {}, "Slots at each switch"),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "slots at each switch over time" },
      s("line", { x1: left, x2: width, y1: y(0), y2: y(0), class: "axis" }),
      s("text", { x: left - 6, y: y(most) + 6, "text-anchor": "end", class: "soft" }, count(most)),
      s("text", { x: left - 6, y: y(0), "text-anchor": "end", class: "soft" }, "0"),
      s("text", { x: left, y: height - 3, class: "soft" }, `${clock(end - begin)} ago`),
      s("text", { x: width, y: height - 3, "text-anchor": "end", class: "soft" }, "now"),
      lines.map(([, points], number) => {
        const path = points.filter(([time_s], index) => (points[index + 1]?.[0] ?? end) >= begin);
        const steps = path.map(([time_s, slots], index) => `${index ? `H${x(time_s)}V` : `M${x(time_s)} `}${y(slots)}`).join("");
        return s("path", { d: `${steps}H${x(end)}`, fill: "none", stroke: color(name), "stroke-width": 2, "stroke-dasharray": dashes[number % dashes.length] });
      }),
    ),
    h("ul", { class: "legend" }, lines.map(([where], number) => h("li", {}, ["solid", "dashed", "dotted", "dash-dotted"][number % 4], ": ", where))),
  );
}

function drawLog(job) {
  const body = document.getElementById("log-body");
  if (!body.firstChild) {
    const pick = h("select", { "aria-label": "Rank", class: "end", onchange: (event) => follow(job.name, Number(event.target.value)) }, Array.from({ length: Math.min(job.workers, 1024) }, (_, rank) => h("option", { value: rank }, `rank ${rank}`)));
    document.getElementById("log-title").append(pick);
    body.append(h("pre", { id: "log-text", tabindex: "0", "aria-label": "Output of the rank" }));
    follow(job.name, 0);
  }
}

async function follow(name, rank) {
  log.stop?.abort();
  const stop = new AbortController();
  log = { key: `${name}/${rank}`, text: "", stop };
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
    if (!stop.signal.aborted) place.textContent = `Not to be had: ${error.message}`;
  }
}

// ---------------------------------------------------------------- asking

class Refusal extends Error {}

async function request(path, method = "GET", signal = undefined) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { method, headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let detail = `status ${answer.status}`;
  try {
    detail = (await answer.json()).detail ?? detail;
  } catch {
    // no problem document: the status has to do
  }
  const refusal = new Refusal(detail);
  refusal.status = answer.status;
  throw refusal;
}
const json = async (path) => (await request(path)).json();

async function stream(path, signal, take) {
  const answer = await request(path, "GET", signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((each) => each.startsWith("data: "));
      if (data) take(JSON.parse(data.slice(6)));
    }
  }
}

async function attempt(call) {
  try {
    await call();
    await refresh();
  } catch (error) {
    await ask("Not done", error.message);
  }
}

function ask(title, text, secret = false) {
  const dialog = document.getElementById("ask");
  if (dialog.open) return Promise.resolve("");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-field").hidden = !secret;
  document.getElementById("ask-token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

async function askToken(why) {
  if (await ask("A token is needed", `${why}. It is kept in this page alone, until you leave it.`, true)) token = document.getElementById("ask-token").value.trim();
  document.getElementById("ask-token").value = "";
}

// ---------------------------------------------------------------- what is shown, and when

const jobOfAddress = () => {
  const found = /^#\/jobs\/(.+)$/.exec(location.hash);
  try {
    return found && decodeURIComponent(found[1]);
  } catch {
    return found[1];
  }
};

let asking = null;
let again = false;
async function refresh() {
  if (asking) {
    again = true;
    return asking;
  }
  asking = (async () => {
    const name = jobOfAddress();
    const [cluster, jobs, memory, explanation] = await Promise.all([
      json("/v1/cluster"),
      someJobs(),
      json("/v1/memory"),
      name ? json(`/v1/jobs/${encodeURIComponent(name)}/explanation`).catch((error) => (error.status === 404 ? null : Promise.reject(error))) : null,
    ]);
    Object.assign(at, { cluster, jobs, memory, explanation });
    rows.clear();
    for (const job of jobs) rows.set(job.name, job);
    if (explanation) rows.set(name, explanation.job);
    draw();
  })();
  try {
    await asking;
  } finally {
    asking = null;
    if (again) {
      again = false;
      soon();
    }
  }
}

async function someJobs() {
  // All that run, those that wait longest, and what was submitted last.
  const found = new Map();
  for (let after = 0; after !== null; ) {
    const page = await json(`/v1/jobs?state=starting&state=running&state=stopping&after=${after}`);
    for (const job of page.jobs) found.set(job.name, job);
    after = page.next;
  }
  for (const query of [`state=queued&limit=${QUEUE}`, `after=-${LATEST}`])
    for (const job of (await json(`/v1/jobs?${query}`)).jobs) found.set(job.name, job);
  return [...found.values()].sort((one, other) => one.number - other.number);
}

function draw() {
  if (!at.cluster) return;
  const name = jobOfAddress();
  const want = name ? `job:${name}` : "overview";
  if (shown !== want) {
    log.stop?.abort();
    if (name) jobPage(name);
    else overview();
    if (shown) {
      document.getElementById("main").focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    shown = want;
    document.title = name ? `${name} · ina controller` : "ina controller";
  }
  const { policies, now_s } = at.cluster;
  document.getElementById("policies").textContent = `${at.cluster.name || "cluster"} · up ${clock(now_s)} · ${Object.entries(policies).map(([kind, each]) => `${kind} ${each}`).join(" · ")}`;
  if (name) drawJob(name);
  else drawOverview();
}

let timer = 0;
function soon(after_ms = SOON_MS) {
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    if (document.visibilityState === "visible") refresh().catch(() => {});
  }, after_ms);
}

function say(text, on) {
  const live = document.getElementById("live");
  if (live.textContent !== text) live.textContent = text;
  live.className = on ? "on" : "";
}

async function main() {
  for (let wait_ms = 500; ; wait_ms = Math.min(15000, wait_ms * 2)) {
    try {
      await refresh();
      at.events = (await json(`/v1/events?after=-${EVENTS}`)).events;
      draw();
      say("live", true);
      wait_ms = 500;
      const last = at.events.at(-1)?.number ?? 0;
      await stream(`/v1/events?follow=true&after=${last}`, undefined, (decision) => {
        at.events = [...at.events, decision].slice(-EVENTS);
        soon();
      });
      say("reconnecting", false);
    } catch (error) {
      if (error.status === 401) {
        say("a token is needed", false);
        await askToken(error.message);
        wait_ms = 250;
      } else say(error instanceof Refusal ? error.message : "not reachable; trying again", false);
    }
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
  }
}

setInterval(() => soon(0), EVERY_MS);
addEventListener("hashchange", () => {
  draw();
  refresh().catch(() => {});
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && soon(0));
main();
