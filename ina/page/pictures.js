// Pictures: the cluster with its trees, and the memory of each switch over time.

import { at, view, WINDOWS } from "./state.js";
import { empty, h, label, picture, rect, s } from "./elements.js";
import { clock, color, count, jobLink, whose } from "./words.js";

function layers() {
  // Servers below, switches above by their distance from servers.
  const { switches, servers, links } = at.cluster;
  const isSwitch = new Set(switches.map((each) => each.name));
  const level = new Map(servers.map((each) => [each.name, 0]));
  for (const name of level.keys()) // also those that are added meanwhile
    for (const { a, b } of links) {
      const other = a === name ? b : a;
      if ((a === name || b === name) && isSwitch.has(other) && !level.has(other)) level.set(other, level.get(name) + 1);
    }
  for (const each of switches) if (!level.has(each.name)) level.set(each.name, 1);
  return level;
}

export function clusterPicture(only = null) {
  const { switches, servers, links } = at.cluster;
  const level = layers();
  const rank = [...new Set(level.values())].sort((one, other) => one - other);
  const names = rank.map((each) => [...level].filter(([, of]) => of === each).map(([name]) => name));
  const width = Math.max(420, 84 * Math.max(...names.map((each) => each.length)));
  const height = 78 * rank.length + 34; // links beside each other bend above the highest
  const place = new Map();
  names.forEach((row, up) => row.forEach((name, number) => place.set(name, [(width * (number + 0.5)) / row.length, height - 42 - 78 * up])));
  const turns = new Map(); // how far each link bends, so that no other node is in its way
  for (const { a, b } of links) turns.set(`${a}|${b}`, bend(a, b, place, width, height));
  const shownJobs = at.jobs.filter((job) => !job.over && (!only || job.id === only));
  const treeLinks = new Map();
  for (const job of shownJobs) {
    if (!job.tree) continue;
    const inTree = new Set([job.tree.root, ...Object.keys(job.tree.parents)]);
    for (const [child, parent] of Object.entries(job.tree.parents)) push(treeLinks, `${child}|${parent}`, job.id);
    for (const { a, b } of links)
      for (const [one, other] of [[a, b], [b, a]])
        if (job.servers.includes(one) && inTree.has(other)) push(treeLinks, `${one}|${other}`, job.id);
  }
  const lines = links.map(({ a, b }) => {
    const jobs = [...(treeLinks.get(`${a}|${b}`) ?? []), ...(treeLinks.get(`${b}|${a}`) ?? [])];
    const turn = turns.get(`${a}|${b}`);
    const line = (by, attributes) => s("path", { d: curve(place.get(a), place.get(b), turn, 3.5 * by), "data-ends": `${a}|${b}`, ...attributes });
    if (!jobs.length) return line(0, { class: "link" });
    return jobs.slice(0, 4).map((name, number) =>
      line(number - (Math.min(jobs.length, 4) - 1) / 2, { class: "link used", stroke: color(name), "data-job": name }),
    );
  });
  const box = (each, width, round, letters, what, cells) => {
    const [x, y] = place.get(each.name);
    const title = s("title", [`${each.name}: ${what}`, each.down].filter(Boolean).join("; "));
    const frame = rect(x - width / 2, y - 18, width, 38, { rx: round, class: each.down ? "box down" : "box" });
    return s("g", title, frame, label(x, y - 3, "middle", brief(each.name, letters), ""), cells(x, y));
  };
  const ofSwitches = switches.map((each) =>
    box(each, 76, 4, 11, `${count(each.slots - each.free)} of ${count(each.slots)} slots held`, (x, y) => [
      rect(x - 32, y + 6, 64, 8, { class: "idle" }),
      bands(each.shares).map(({ share, from, to }) =>
        rect(x - 32 + (64 * from) / each.slots, y + 6, Math.max(0.5, (64 * (to - from)) / each.slots), 8, { fill: fill(share.job) }),
      ),
    ]),
  );
  const onServer = new Map();
  for (const job of shownJobs) for (const server of job.servers) for (let gpu = 0; gpu < job.gpus / job.workers; gpu++) push(onServer, server, job.id);
  const ofServers = servers.map((each) => {
    const has = onServer.get(each.name) ?? [];
    const many = Math.min(each.gpus, 16);
    const size = Math.min(9, 60 / Math.max(1, many) - 2);
    const what = [`${each.used} of ${each.gpus} GPUs`, [...new Set(has)].join(", ")].filter(Boolean).join(": ");
    return box(each, 68, 12, 10, what, (x, y) =>
      Array.from({ length: many }, (_, gpu) =>
        rect(x - (many * (size + 2)) / 2 + gpu * (size + 2), y + 4, size, 9, { rx: 1, class: has[gpu] ? "" : "idle", fill: has[gpu] && color(has[gpu]) }),
      ),
    );
  });
  const says = `${switches.length} switches and ${servers.length} servers; ${shownJobs.length} jobs. The table of servers and switches says the same.`;
  const top = [...turns.values()].some(Boolean) ? 0 : 30;
  const drawing = picture(width, height - top, says, lines.flat(), ofSwitches, ofServers);
  drawing.setAttribute("viewBox", `0 ${top} ${width} ${height - top}`);
  drawing.style.minWidth = `${Math.min(width, 1400) * 0.7}px`;
  drawing.style.maxHeight = "26rem";
  return h("div", { class: "scroll", tabindex: "0" }, drawing);
}

const BOX = [42, 25]; // half the width and height of a node, with a little room

function middle([x1, y1], [x2, y2], turn) {
  const across = Math.hypot(x2 - x1, y2 - y1) || 1;
  return [(x1 + x2) / 2 - ((y2 - y1) / across) * turn, (y1 + y2) / 2 + ((x2 - x1) / across) * turn];
}

function curve(from, to, turn, aside) {
  const across = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
  const [dx, dy] = [(-(to[1] - from[1]) / across) * aside, ((to[0] - from[0]) / across) * aside];
  const [one, two, three] = [from, middle(from, to, turn), to].map(([x, y]) => `${x + dx} ${y + dy}`);
  return turn ? `M${one}Q${two} ${three}` : `M${one}L${three}`;
}

function bend(a, b, place, width, height) {
  // The least bend with which a link stays in the picture and meets no node but its ends; 0 if none does.
  const [from, to] = [place.get(a), place.get(b)];
  const others = [...place].filter(([name]) => name !== a && name !== b).map(([, at]) => at);
  const free = (turn) => {
    const by = middle(from, to, turn);
    for (let part = 1; part < 40; part++) {
      const t = part / 40;
      const [x, y] = [0, 1].map((each) => (1 - t) ** 2 * from[each] + 2 * t * (1 - t) * by[each] + t ** 2 * to[each]);
      if (x < 2 || x > width - 2 || y < 2 || y > height - 2) return false;
      if (others.some(([ox, oy]) => Math.abs(x - ox) < BOX[0] && Math.abs(y - oy) < BOX[1])) return false;
    }
    return true;
  };
  const up = from[0] < to[0] ? -1 : 1;
  return [0, 50, 60, 70, 90, 120, 160, 200].flatMap((turn) => [turn * up, -turn * up]).find(free) || 0;
}

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}
const fill = (job) => (job ? color(job) : "gray");
const brief = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function bands(shares) {
  // Jobs that share a region are shown beside each other in it.
  const regions = Map.groupBy(shares, (share) => `${share.first}+${share.slots}`);
  return [...regions.values()].flatMap((jobs) =>
    jobs.map((share, number) => ({
      share,
      from: share.first + (share.slots * number) / jobs.length,
      to: share.first + (share.slots * (number + 1)) / jobs.length,
      among: jobs.length,
    })),
  );
}

export const drawn = () => (innerWidth < 640 ? 340 : 640); // so that letters keep their size

export function plot(begin, end, top, height, says, parts) {
  // Draws `parts`, a function of the scales of time and of 0 to `top`, with the ends of both scales.
  const [width, left] = [drawn(), 46];
  const x = (time_s) => left + ((width - left) * (Math.max(begin, Math.min(end, time_s)) - begin)) / (end - begin);
  const y = (value) => 2 + ((height - 4) * (top - value)) / top;
  const time = [label(left, height + 10, "start", `${clock(end - begin)} ago`), label(width, height + 10, "end", "now")];
  return picture(width, height + 12, says, parts(x, y), label(left - 6, 12, "end", count(top)), label(left - 6, height - 2, "end", "0"), time);
}

export function memoryMap(only = null) {
  const { memory } = at;
  const begin = Math.max(memory.since_s, memory.now_s - WINDOWS[view.window]);
  const end = Math.max(memory.now_s, begin + 1);
  const seen = new Set();
  const had = (moments) => !only || moments.some((moment) => moment.shares.some((share) => share.job === only));
  const all = Object.entries(memory.switches).filter(([, moments]) => had(moments));
  if (!all.length) return empty("It has had no slots since the service was started last.");
  const maps = all.map(([name, moments], place) => {
    const slots = memory.slots[name];
    const cells = (x, y) =>
      moments.map((moment, number) => {
        const until = moments[number + 1]?.at_s ?? end;
        const shown = bands(moment.shares).filter(({ share }) => until >= begin && (!only || share.job === only));
        return shown.map(({ share, from, to, among }) => {
          if (share.job) seen.add(share.job);
          const area = [x(moment.at_s), y(to), Math.max(0.6, x(until) - x(moment.at_s)), Math.max(0.6, y(from) - y(to))];
          const what = `${whose(share.job)}: slots ${count(share.first)} to ${count(share.first + share.slots - 1)}${among > 1 ? `, shared by ${among}` : ""}, ${clock(moment.at_s)} to ${clock(until)}`;
          const hatched = among > 1 && rect(...area, { fill: "url(#hatch-" + place + ")", "pointer-events": "none" });
          return [rect(...area, { fill: fill(share.job) }, s("title", what)), hatched];
        });
      });
    const hatch = s("pattern", { id: "hatch-" + place, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }));
    const now = at.cluster.switches.find((each) => each.name === name);
    const held = now ? now.slots - now.free : 0;
    return h(
      "div",
      { class: "map" },
      h("h3", name, " ", h("small", now?.down ? h("span", { class: "bad" }, now.down) : `${count(held)} of ${count(slots)} slots held now`)),
      plot(begin, end, slots, 70, `${name}: who has had which slots`, (x, y) => [
        s("defs", hatch),
        rect(x(begin), y(slots), x(end) - x(begin), y(0) - y(slots), { class: "idle" }),
        cells(x, y),
      ]),
    );
  });
  const legend = h("ul", { class: "legend" }, [...seen].slice(0, 24).map((name) => h("li", jobLink(name, "legend"))), seen.size ? h("li", { class: "soft" }, "hatched: shared") : null);
  return [h("div", { class: "maps" }, maps), legend];
}
