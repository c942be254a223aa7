// The page's data from the API, and the common state of its parts.

export const WINDOWS = { "5 min": 300, "1 h": 3600, "all": Infinity };
export const at = { cluster: null, jobs: [], memory: null, events: [], explanation: null };
export const rows = new Map(); // jobs by id
export const view = {
  measured: false, // whether explanations have measurements
  window: "5 min", // of memory maps: one of WINDOWS
  redraw() {}, // draws the known data again
  async refresh() {}, // asks again, and draws
};
