// What tells the time, kept current without asking the server again: relative times in its words (daemon/cli/render.py),
// the day of a clock time, and the line of the present on the time line.
const DAY = 86_400_000; // milliseconds

// The same as duration_in_words in daemon/durations.py.
export function duration(seconds) {
  if (seconds < 0.9995) return `${(Math.max(0, seconds) * 1000).toFixed(0)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${seconds.toFixed(0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 600) return twoUnits(minutes, 60, "h", "min");
  const hours = Math.round(seconds / 3600);
  if (hours < 24) return `${hours} h`;
  if (hours < 240) return twoUnits(hours, 24, "d", "h");
  return `${Math.round(seconds / 86_400)} d`;
}

function twoUnits(count, size, larger, smaller) {
  const whole = Math.floor(count / size);
  return count % size ? `${whole} ${larger} ${count % size} ${smaller}` : `${whole} ${larger}`;
}

export function relative(seconds) {
  if (seconds > -1 && seconds < 1) return "now";
  const distance = Math.abs(seconds);
  const text = distance < 9.95 ? `${Math.round(distance)} s` : duration(distance);
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

// A local time with its day where that is not today, as daemon/cli/render.py writes it: `tail` is the time with its zone,
// the days are like 2026-11-24.
export function localTime(tail, day, today) {
  if (day === today) return tail;
  const date = new Date(day);
  const word = (options) => date.toLocaleDateString("en", { timeZone: "UTC", ...options });
  if (Math.abs(date - new Date(today)) < 7 * DAY) return `${word({ weekday: "short" })} ${tail}`;
  const words = `${day.slice(8)} ${word({ month: "short" })}`;
  return day.slice(0, 4) === today.slice(0, 4) ? `${words} ${tail}` : `${words} ${day.slice(0, 4)} ${tail}`;
}

// The clock of the server may differ from this machine's: `data-now` is its time when it rendered the page.
const renderedAt = document.documentElement.dataset.now ?? new Date().toISOString();
const serverOffset = Date.parse(renderedAt) - Date.now(); // milliseconds

// The date of a moment in the zone of the server.
function dayOf(milliseconds) {
  const [, sign, hours, minutes] = renderedAt.match(/([+-])(\d\d):(\d\d)$/) ?? ["", "+", "0", "0"];
  const offset = (sign === "-" ? -1 : 1) * (60 * hours + 1 * minutes) * 60_000;
  return new Date(milliseconds + offset).toISOString().slice(0, 10);
}

let shownDay = dayOf(Date.parse(renderedAt));

function updateTimes(onNewDay) {
  const now = Date.now() + serverOffset;
  const today = dayOf(now);
  for (const element of document.querySelectorAll("time[data-day]")) {
    const tail = element.textContent.match(/\d\d:\d\d \S+$/)?.[0];
    const text = tail && localTime(tail, element.dataset.day, today);
    if (text && text !== element.textContent) element.textContent = text;
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    const text = relative((Date.parse(element.dataset.since) - now) / 1000);
    if (text !== element.textContent) element.textContent = text;
  }
  for (const line of document.querySelectorAll("line.now")) {
    const [begin, end] = [line.dataset.begin, line.dataset.end].map(Date.parse);
    const left = `${Math.min((100 * (now - begin)) / (end - begin), 100).toFixed(3)}%`;
    line.setAttribute("x1", left);
    line.setAttribute("x2", left);
  }
  if (today !== shownDay) {
    shownDay = today;
    onNewDay();
  }
}

// Keeps all times current; `onNewDay` is called after midnight in the zone of the server.
export function keepTimesCurrent(onNewDay) {
  const update = () => updateTimes(onNewDay);
  setInterval(update, 1000);
  document.addEventListener("visibilitychange", update);
}
