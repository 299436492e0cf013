// What changes while one looks at it: a page of runs under way is fetched again when something has happened, and the
// live view gets a line per event. Every text of a run is set as text, never as HTML.
import { keepTimesCurrent } from "./times.mjs";

const main = document.getElementById("main");
const LATER = 400; // milliseconds that a burst of events is given to end
const MOST = 500; // lines of the live view

function follow(run, heard) {
  const source = new EventSource(run === "all" ? "/events" : `/events?run=${encodeURIComponent(run)}`);
  source.onmessage = (message) => heard(JSON.parse(message.data));
  source.addEventListener("gone", () => source.close());
  return source;
}

// What can have the focus, in order; and one of them as what it is and does, since its element will be another one.
const reached = () => [...main.querySelectorAll("a[href], button, summary, input, select, [tabindex]")];
const named = (each) => [each.tagName, each.closest("[id]")?.id, each.getAttribute("href"), each.textContent].join("|");

function placeOf(element) {
  const number = reached().indexOf(element);
  return number < 0 ? null : { number, name: named(element) };
}

function at(place) {
  const same = reached().filter((each) => named(each) === place.name);
  const near = (each) => Math.abs(reached().indexOf(each) - place.number);
  return same.sort((one, other) => near(one) - near(other))[0];
}

// The same page, with what stands in it now; where the reader is, what is unfolded and what has the focus stay.
async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return true;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("main");
  takeOver(page);
  const open = new Set([...main.querySelectorAll("article[id] details[open]")].map((each) => each.closest("article").id));
  const focused = placeOf(document.activeElement);
  for (const id of open) fresh.querySelector(`#${id} details`)?.setAttribute("open", "");
  main.replaceChildren(...fresh.childNodes);
  reachable();
  if (focused) at(focused)?.focus({ preventScroll: true });
  return fresh.hasAttribute("data-live");
}

// What stands outside of the content and tells of trouble: the title, the icon of the tab, the counts of the menu.
function takeOver(page) {
  document.title = page.title;
  const icon = document.querySelector("link[rel=icon]");
  const freshIcon = page.querySelector("link[rel=icon]");
  if (icon && freshIcon && icon.getAttribute("href") !== freshIcon.getAttribute("href")) icon.replaceWith(freshIcon);
  const entries = [...document.querySelectorAll("nav a")];
  for (const [number, entry] of [...page.querySelectorAll("nav a")].entries()) {
    if (entries[number] && entries[number].innerHTML !== entry.innerHTML) {
      entries[number].replaceChildren(...entry.childNodes);
    }
  }
}

// A table that is wider than the window is scrolled with the keyboard too, once it can have the focus.
function reachable() {
  for (const each of document.querySelectorAll(".wide")) {
    const scrolls = each.scrollWidth > each.clientWidth;
    if (scrolls === each.hasAttribute("tabindex")) continue;
    if (scrolls) {
      each.tabIndex = 0;
      each.setAttribute("role", "region");
      each.setAttribute("aria-label", each.querySelector("caption, th")?.textContent.trim() || "A wide table");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) each.removeAttribute(name);
    }
  }
}

function line(event) {
  const item = document.createElement("li");
  const stamp = document.createElement("time");
  stamp.textContent = new Date(event.at ?? Date.now()).toLocaleTimeString();
  const link = document.createElement("a");
  link.href = `/runs/${encodeURIComponent(event.run)}`;
  link.textContent = event.routine ?? event.run.slice(-8);
  const what = document.createElement("span");
  what.className = event.type;
  what.textContent = words(event);
  item.append(stamp, " ", link, " ", what);
  return item;
}

function words(event) {
  switch (event.type) {
    case "run_started": return "started";
    case "thinking": return event.text ? `thinks: ${event.text}` : `asks ${event.provider ?? "its model"}`;
    case "tool_started": return `calls ${event.tool} ${JSON.stringify(event.args ?? {})}`;
    case "tool_finished": return `${event.tool} ${event.ok ? "answered" : "failed"}: ${event.preview ?? ""}`;
    case "message": return `says: ${event.text}`;
    case "run_retry_scheduled": return `is put off: ${event.detail ?? ""}`;
    case "run_waiting": return `waits: ${event.detail ?? ""}`;
    case "run_ended": return `${(event.status ?? "").replaceAll("_", " ")}${event.detail ? `: ${event.detail}` : ""}`;
    default: return event.type.replaceAll("_", " ");
  }
}

// The runs under way, above the live view.
async function refreshActive() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  takeOver(page);
  document.getElementById("active").replaceWith(page.getElementById("active"));
  reachable();
}

const list = document.getElementById("live");
if (list) {
  const state = document.getElementById("live-state");
  let timer;
  const source = follow("all", (event) => {
    if (event.type === "delta") return;
    if (event.type.startsWith("run_")) {
      clearTimeout(timer);
      timer = setTimeout(refreshActive, LATER);
    }
    state.textContent = "Newest last.";
    const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    list.append(line(event));
    while (list.childElementCount > MOST) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  });
  source.addEventListener("following", () => {
    if (list.childElementCount) return;
    const busy = !document.getElementById("active").hidden;
    state.textContent = busy ? "What happens next is listed here." : "Waiting for something to happen.";
  });
  source.addEventListener("gone", () => {
    state.textContent = "No daemon answers. Load this page again once it has been started.";
  });
} else if (main?.dataset.live) {
  let timer;
  const source = follow(main.dataset.live, () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!(await refresh())) source.close();
    }, LATER);
  });
}

// To the line of a fault, in the text that has it.
for (const link of document.querySelectorAll("[data-line]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const text = document.getElementById("text");
    const lines = text.value.split("\n");
    const number = Math.min(Number(link.dataset.line), lines.length);
    const begin = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
    text.setSelectionRange(begin, begin + lines[number - 1].length);
    text.blur();
    text.focus(); // scrolls to the selection
  });
}

keepTimesCurrent(() => main?.dataset.live && refresh());
reachable();
addEventListener("resize", reachable);

if (location.hash) document.querySelector(location.hash)?.classList.add("aimed");
