// The operator's page: a client of /v1 like any other; chooses the contents and the times of updates.

import { at, rows, view } from "./state.js";
import { askToken, json, Refusal, stream } from "./asking.js";
import { h } from "./elements.js";
import { drawJob, jobPage, leaveJob } from "./job.js";
import { drawOverview, EVENTS, overview } from "./overview.js";
import { clock } from "./words.js";

const EVERY_MS = 5000; // interval of requests for progress, without a decision
const SOON_MS = 1000; // delay of requests for all else after a decision
const ALL_EVERY = 12; // and their interval without one, in requests for progress
const PLACED = new Set(["starting", "running", "stopping"]);
const QUEUE = 100;
const LATEST = 200;
const SHOWN = "without=measured"; // every 2 s of each job

let shown = ""; // the page whose content is shown

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
async function refresh(all = true) {
  // Without `all` only values that change without a decision: progress, and usage.
  if (asking) {
    again ||= all;
    return asking;
  }
  asking = (async () => {
    const name = jobOfAddress();
    const [cluster, running, others, memory, explanation] = await Promise.all([
      json("/v1/cluster"),
      runningJobs(),
      all ? otherJobs() : at.jobs.filter((job) => !PLACED.has(job.state)),
      all ? json("/v1/memory") : at.memory,
      name && (all || !rows.get(name)?.over) ? explained(name) : at.explanation,
    ]);
    const found = new Map([...others, ...running].map((job) => [job.id, job]));
    const jobs = [...found.values()].sort((one, other) => one.number - other.number);
    Object.assign(at, { cluster, jobs, memory: { ...memory, now_s: cluster.now_s }, explanation });
    rows.clear();
    for (const job of jobs) rows.set(job.id, job);
    if (explanation) for (const each of [name, explanation.job.id]) rows.set(each, explanation.job);
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

async function runningJobs() {
  const found = [];
  for (let after = 0; after !== null; ) {
    const page = await json(`/v1/jobs?${[...PLACED].map((state) => `state=${state}`).join("&")}&after=${after}`);
    found.push(...page.jobs);
    after = page.next;
  }
  return found;
}

async function otherJobs() {
  // The jobs that wait longest, and the latest submissions.
  const pages = await Promise.all([`state=queued&limit=${QUEUE}`, `after=-${LATEST}`].map((query) => json(`/v1/jobs?${query}`)));
  return pages.flatMap((page) => page.jobs);
}

async function explained(name) {
  try {
    return await json(`/v1/jobs/${encodeURIComponent(name)}/explanation`);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

function draw() {
  if (!at.cluster) return;
  const name = jobOfAddress();
  const want = name ? `job:${name}` : "overview";
  if (shown !== want) {
    leaveJob();
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
  if (!name) drawOverview();
  else if (!drawJob(name)) shown = ""; // until it is there
}

let timer = 0;
function soon(after_ms = SOON_MS) {
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    refreshIfSeen(true);
  }, after_ms);
}

function refreshIfSeen(all) {
  if (document.visibilityState === "visible") refresh(all).catch(() => {});
}

function askedAgain() {
  // Shows a button, and waits for it: a user who has cancelled is not asked again at once.
  return new Promise((resolve) => {
    const button = h("button", { type: "button", class: "strong", onclick: resolve }, "Give a token");
    document.getElementById("main").replaceChildren(h("section", h("h2", "Nothing is shown without a token"), h("p", button)));
    shown = "";
    button.focus();
  });
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
      at.events = (await json(`/v1/events?${SHOWN}&after=-${EVENTS}`)).events;
      draw();
      say("live", true);
      wait_ms = 500;
      const last = at.events.at(-1)?.number ?? 0;
      await stream(`/v1/events?${SHOWN}&follow=true&after=${last}`, undefined, (decision) => {
        at.events = [...at.events, decision].slice(-EVENTS);
        soon();
      });
      say("reconnecting", false);
    } catch (error) {
      if (error.status === 401) {
        say("a token is needed", false);
        while (!(await askToken())) await askedAgain();
        wait_ms = 50;
      } else say(error instanceof Refusal ? error.message : "not reachable; trying again", false);
      if (error instanceof ReferenceError || error instanceof SyntaxError) throw error; // ours
    }
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
  }
}

Object.assign(view, { redraw: draw, refresh });
let turns = 0;
setInterval(() => refreshIfSeen(turns++ % ALL_EVERY === 0), EVERY_MS);
addEventListener("hashchange", () => {
  draw();
  refresh().catch(() => {});
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && soon(0));
main();
