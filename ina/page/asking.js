// Requests to the API, and questions to the person.

import { view } from "./state.js";

let token = ""; // kept here alone, until the page is left

export class Refusal extends Error {}

export async function request(path, method = "GET", signal = undefined) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { method, headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let detail = `status ${answer.status}`;
  try {
    detail = (await answer.json()).detail ?? detail;
  } catch {
    // no problem document: show the status
  }
  const refusal = new Refusal(detail);
  refusal.status = answer.status;
  throw refusal;
}
export const json = async (path) => (await request(path)).json();

export async function stream(path, signal, take) {
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

export async function attempt(call) {
  try {
    await call();
    await view.refresh();
  } catch (error) {
    await ask("Not done", error.message, "notice");
  }
}

export function ask(title, text, kind = "choice") {
  // A choice needs a confirmation, a notice only a reader; a secret is typed.
  const dialog = document.getElementById("ask");
  if (dialog.open) return Promise.resolve("");
  const key = document.activeElement?.closest("[data-key]")?.dataset.key;
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-field").hidden = kind !== "secret";
  document.getElementById("ask-token").value = "";
  const no = document.getElementById("ask-no");
  no.hidden = kind === "notice";
  no.onclick = () => dialog.close("");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener(
      "close",
      () => {
        // the focused element may have been drawn again meanwhile
        const had = key && [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
        if (had) had.focus();
        else if (document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
        resolve(dialog.returnValue);
      },
      { once: true },
    ),
  );
}

export async function askToken() {
  // Returns whether one was given.
  const why = token
    ? "This controller does not know that token, or it has been removed."
    : "This controller shows its jobs to people who have a token. Its operator makes one with “ina controller token add”.";
  const given = await ask(token ? "Another token is needed" : "A token is needed", `${why} The page keeps it in memory, until you leave it.`, "secret");
  if (given) token = document.getElementById("ask-token").value.trim();
  document.getElementById("ask-token").value = "";
  return Boolean(given);
}

