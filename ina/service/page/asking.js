// Asking the API, and the person.

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
    // no problem document: the status has to do
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
    await ask("Not done", error.message);
  }
}

export function ask(title, text, secret = false) {
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

export async function askToken(why) {
  if (await ask("A token is needed", `${why}. It is kept in this page alone, until you leave it.`, true)) token = document.getElementById("ask-token").value.trim();
  document.getElementById("ask-token").value = "";
}

