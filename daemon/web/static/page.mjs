// What changes while one looks at it: a page of runs under way is fetched again when something has happened, and the
// live view gets a line per event. Every text of a run is set as text, never as HTML.
import { keepTimesCurrent } from "./times.mjs";

const main = document.getElementById("main");
const BURST_MILLISECONDS = 400; // that a burst of events is given to end
const RETRY_MILLISECONDS = 5000; // until a daemon that was gone is looked for again
const MAX_LINES = 500; // of the live view

// Calls `onEvent` with each event of a run, or of all runs.
function followEvents(run, onEvent) {
  const source = new EventSource(run === "all" ? "/events" : `/events?run=${encodeURIComponent(run)}`);
  source.onmessage = (message) => onEvent(JSON.parse(message.data));
  for (const end of ["gone", "refused"]) source.addEventListener(end, () => source.close());
  return source;
}

// The elements that can have the focus, in order.
const focusableElements = () => [...main.querySelectorAll("a[href], button, summary, input, select, [tabindex]")];

// What an element is and does: `refresh` replaces it by another element with the same name.
function nameOf(element) {
  return [element.tagName, element.closest("[id]")?.id, element.getAttribute("href"), element.textContent].join("|");
}

// The number of an element among those that can have the focus, and its name; null if it cannot have it.
function positionOf(element) {
  const number = focusableElements().indexOf(element);
  return number < 0 ? null : { number, name: nameOf(element) };
}

// Of the elements with the name of a position, the one that is nearest to it.
function elementAt(position) {
  const elements = focusableElements();
  const distance = (element) => Math.abs(elements.indexOf(element) - position.number);
  const candidates = elements.filter((element) => nameOf(element) === position.name);
  return candidates.sort((one, other) => distance(one) - distance(other))[0];
}

// What can be unfolded, by the nearest id (its own, or one around it) and the number there: `refresh` replaces it all.
function detailsOf(root) {
  const counts = new Map();
  return new Map([...root.querySelectorAll("details")].map((element) => {
    const id = element.closest("[id]").id;
    counts.set(id, (counts.get(id) ?? 0) + 1);
    return [`${id}|${counts.get(id)}`, element];
  }));
}

// Shows what the page holds now; where the reader is, what is unfolded and what has the focus stay. Returns whether the
// page may still change.
async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return true;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const newMain = page.getElementById("main");
  updateFrame(page);
  const details = detailsOf(main);
  const focus = positionOf(document.activeElement);
  for (const [place, element] of detailsOf(newMain)) if (details.get(place)?.open) element.open = true;
  main.replaceChildren(...newMain.childNodes);
  makeWideTablesFocusable();
  if (focus) elementAt(focus)?.focus({ preventScroll: true });
  return newMain.hasAttribute("data-live");
}

// Updates what stands outside of the content: the title, the icon of the tab, the counts of the menu.
function updateFrame(page) {
  document.title = page.title;
  const icon = document.querySelector("link[rel=icon]");
  const newIcon = page.querySelector("link[rel=icon]");
  if (icon && newIcon && icon.getAttribute("href") !== newIcon.getAttribute("href")) icon.replaceWith(newIcon);
  const entries = [...document.querySelectorAll("nav a")];
  for (const [number, entry] of [...page.querySelectorAll("nav a")].entries()) {
    if (entries[number] && entries[number].innerHTML !== entry.innerHTML) {
      entries[number].replaceChildren(...entry.childNodes);
    }
  }
}

// Lets tables that are wider than the window have the focus, so that they are scrolled with the keyboard too.
function makeWideTablesFocusable() {
  for (const table of document.querySelectorAll(".wide")) {
    const scrolls = table.scrollWidth > table.clientWidth;
    if (scrolls === table.hasAttribute("tabindex")) continue;
    if (scrolls) {
      table.tabIndex = 0;
      table.setAttribute("role", "region");
      table.setAttribute("aria-label", table.querySelector("caption, th")?.textContent.trim() || "A wide table");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) table.removeAttribute(name);
    }
  }
}

function makeLine(event) {
  const item = document.createElement("li");
  const stamp = document.createElement("time");
  stamp.textContent = new Date(event.at ?? Date.now()).toLocaleTimeString();
  const link = document.createElement("a");
  link.href = `/runs/${encodeURIComponent(event.run)}`;
  link.textContent = event.routine ?? event.run.slice(-8);
  const text = document.createElement("span");
  text.className = event.type;
  text.textContent = describeEvent(event);
  item.append(stamp, " ", link, " ", text);
  return item;
}

function describeEvent(event) {
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

// Updates the runs under way, above the live view.
async function refreshActive() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  updateFrame(page);
  document.getElementById("active").replaceWith(page.getElementById("active"));
  makeWideTablesFocusable();
}

const list = document.getElementById("live");
if (list) {
  followLive(false);
} else if (main?.dataset.live) {
  followPage(false);
}

// Lists what happens, also in a daemon that was stopped and started again: `wasGone`.
function followLive(wasGone) {
  const state = document.getElementById("live-state");
  let timer, isFirst = true;
  const source = followEvents("all", (event) => {
    if (event.type === "delta") return;
    if (event.type.startsWith("run_")) refreshActiveSoon();
    state.textContent = "Newest last.";
    const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    list.append(makeLine(event));
    while (list.childElementCount > MAX_LINES) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  });
  function refreshActiveSoon() {
    clearTimeout(timer);
    timer = setTimeout(refreshActive, BURST_MILLISECONDS);
  }
  source.addEventListener("following", () => {
    if (wasGone || !isFirst) refreshActiveSoon(); // what has happened meanwhile is no event of this stream
    isFirst = false;
    const busy = !document.getElementById("active").hidden;
    if (list.childElementCount) state.textContent = "Newest last.";
    else state.textContent = busy ? "What happens next is listed here." : "Waiting for something to happen.";
  });
  source.addEventListener("gone", () => {
    state.textContent = "No daemon answers. This list goes on when it is started again.";
    setTimeout(() => followLive(true), RETRY_MILLISECONDS);
  });
  source.addEventListener("refused", (message) => {
    state.textContent = `The daemon says no: ${JSON.parse(message.data).detail}`;
  });
}

// Fetches the page again when something has happened, also in a daemon that was stopped and started again: `wasGone`.
function followPage(wasGone) {
  let timer, isFirst = true;
  const source = followEvents(main.dataset.live, fetchSoon);
  function fetchSoon() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!(await refresh())) source.close();
    }, BURST_MILLISECONDS);
  }
  source.addEventListener("following", () => {
    if (wasGone || !isFirst) fetchSoon(); // what has happened meanwhile is no event of this stream
    isFirst = false;
  });
  source.addEventListener("gone", () => {
    showNotice("No daemon answers. This is what it said last; the page goes on when it is started again.");
    setTimeout(() => followPage(true), RETRY_MILLISECONDS);
  });
  source.addEventListener("refused", (message) => {
    showNotice(`This is what the daemon said last. Now it says no: ${JSON.parse(message.data).detail}`);
  });
}

// Says why what the page shows is not of now, until `refresh` replaces it.
function showNotice(text) {
  const notice = document.getElementById("gone") ?? document.createElement("p");
  if (notice.textContent === text) return; // said again, it would be read out again
  notice.id = "gone";
  notice.className = "alarm";
  notice.setAttribute("role", "alert");
  notice.textContent = text;
  main.prepend(notice);
}

// A link at a fault selects the line of the fault in the text.
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
makeWideTablesFocusable();
addEventListener("resize", makeWideTablesFocusable);

if (location.hash) document.querySelector(location.hash)?.classList.add("aimed");
