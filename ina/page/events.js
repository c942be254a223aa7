// Lists of decisions, and deadlines.

import { at } from "./state.js";
import { empty, h } from "./elements.js";
import { clock, jobLink, wall } from "./words.js";

export function eventList(events, about = null) {
  if (!events.length) return empty("Nothing has happened yet.");
  return h(
    "ol",
    { class: "events", tabindex: "0", "aria-label": "Events, latest first" },
    events.map((each) =>
      h(
        "li",
        h("time", { title: wall(each.at_s) }, clock(each.at_s)),
        h("span", { class: ["failed", "missed", "refused", "gone", "interrupted"].includes(each.event) ? "bad" : "soft" }, each.event),
        h("p", named(each, about), each.text),
      ),
    ),
  );
}

function named(decision, about) {
  if (!decision.jobs.length || (decision.jobs.length === 1 && decision.jobs[0] === about)) return null;
  return [decision.jobs.map((name, number) => [number ? ", " : "", jobLink(name, `event${decision.number}`)]), ": "];
}

export function due(job) {
  const { now_s } = at.cluster;
  if (job.due_s == null) return h("span", { class: "soft" }, "best effort");
  const left_s = job.due_s - now_s;
  const text = job.over ? wall(job.due_s) : left_s < 0 ? `${clock(-left_s)} ago` : `in ${clock(left_s)}${job.late ? ", late" : ""}`;
  return h("span", { class: !job.over && (job.late || left_s < 0) ? "warn" : "", title: wall(job.due_s) }, text);
}
