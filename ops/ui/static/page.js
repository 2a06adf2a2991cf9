"use strict";
// Live updates of [data-live] elements, charts and logs. Without this file every page still shows its values.

const PALETTE = ["#2f6fd0", "#d2691e", "#2e8b57", "#b03060", "#8a6fd1", "#a08010", "#148a8a", "#8b5a2b"];
const REDRAW_MS = 5000;

function follow(address, handlers) {
  const stream = new EventSource(address);
  for (const [name, handle] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => handle(JSON.parse(event.data), stream));
  }
  return stream;
}

// Replace the live elements of `main` that differ; keep focus, selected boxes and open details.
function update(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const shown = [...document.querySelectorAll("main [data-live]")].map((one) => one.id);
  const sent = [...fresh.querySelectorAll("[data-live]")].map((one) => one.id);
  if (shown.join() !== sent.join()) { // Another page: an error came or went.
    location.reload();
    return;
  }
  for (const one of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(one.id);
    if (old.innerHTML === one.innerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const kept = focused && (focused.id ? "#" + CSS.escape(focused.id)
      : focused.getAttribute("href") ? `a[href="${CSS.escape(focused.getAttribute("href"))}"]` : null);
    const checked = [...old.querySelectorAll("input:checked")].map((box) => box.id);
    const open = [...old.querySelectorAll("details[open]")].map((details) => details.id);
    old.replaceChildren(...one.childNodes);
    for (const id of checked) { const box = document.getElementById(id); if (box) box.checked = true; }
    for (const id of open) { const details = document.getElementById(id); if (details) details.open = true; }
    if (kept) { const again = old.querySelector(kept); if (again) again.focus({ preventScroll: true }); }
  }
}

function connect() {
  const status = document.getElementById("connection");
  const alive = () => { status.textContent = "live"; status.className = ""; };
  const address = "/events?page=" + encodeURIComponent(location.pathname + location.search);
  const stream = follow(address, {
    main: (html) => { alive(); update(html); draw(); },
    same: () => { alive(); draw(); },
  });
  stream.onerror = () => {
    status.textContent = "not connected: is `trainyard ui` still running?";
    status.className = "lost";
  };
}

// Charts

const charts = new Map();
let drawn = 0;

function styleOf(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function join(curves, runs, name) {
  const steps = new Set();
  const tables = runs.map((run) => {
    const table = new Map();
    const found = curves[run] || {};
    (found.step || []).forEach((step, index) => {
      const value = found[name][index];
      if (value !== null) { table.set(step, value); steps.add(step); }
    });
    return table;
  });
  const x = [...steps].sort((a, b) => a - b);
  return [x, ...tables.map((table) => x.map((step) => table.get(step) ?? null))];
}

function compact(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return size >= 1e4 ? (value / 1e3).toFixed(size >= 1e5 ? 0 : 1) + "k" : String(Number(value.toPrecision(4)));
}

function chart(place, runs, data) {
  const text = styleOf("--soft"), line = styleOf("--line");
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: "12px system-ui" };
  const one = runs.length === 1;
  const series = runs.map((run, index) => ({
    label: one ? "value" : run, stroke: PALETTE[index % PALETTE.length], width: 2, spanGaps: true,
    points: { show: data[0].length < 3 }, value: (_, value) => compact(value),
  }));
  return new uPlot({
    width: Math.max(200, place.clientWidth), height: 220, scales: { x: { time: false } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map(compact) }, { ...axis, size: 60, values: (_, ticks) => ticks.map(compact) }],
    series: [{ label: "step" }, ...series], cursor: { drag: { x: true, y: false } },
  }, data, place);
}

async function draw(force) {
  const block = document.querySelector(".charts");
  if (!block || (!force && Date.now() - drawn < REDRAW_MS)) return;
  drawn = Date.now();
  const named = block.dataset.runs.trim().split(/\s+/);
  const query = new URLSearchParams(named.map((run) => ["run", run]));
  let curves;
  try {
    const answer = await fetch("/curves?" + query);
    if (!answer.ok) return;
    curves = await answer.json();
  } catch { return; }
  const every = named.map((run) => run.slice(run.indexOf("/") + 1));
  const runs = every.filter((run, index) => index === 0 || (curves[run].step || []).length);
  const note = document.getElementById("curves-note");
  if (note && !note.hasAttribute("data-live")) {
    note.textContent = every.filter((run) => curves[run].gap).map((run) => `${run}: ${curves[run].gap}`).join(" · ");
  }
  for (const place of block.querySelectorAll(".chart")) {
    const data = join(curves, runs, place.dataset.curve);
    place.dataset.points = data[0].length;
    if (!data[0].length) {
      if (!place.firstChild) place.append(Object.assign(document.createElement("p"), { className: "empty", textContent: "not measured" }));
      continue;
    }
    const old = charts.get(place);
    if (old && !force) { old.setData(data); continue; }
    place.replaceChildren();
    charts.set(place, chart(place, runs, data));
  }
}

// Logs

let log = null;
const LINES_MAX = 5000;

function say(target, text, kind) {
  const stick = document.querySelector("#log-form [name=stick]").checked;
  for (const line of text.split("\n")) {
    const row = document.createElement("div");
    row.textContent = line;
    if (kind) row.className = kind;
    target.append(row);
  }
  while (target.childElementCount > LINES_MAX) target.firstChild.remove();
  if (stick) target.scrollTop = target.scrollHeight;
}

function followLog(rank, group) {
  const form = document.getElementById("log-form");
  const target = document.getElementById("log-lines");
  if (log) log.close();
  target.replaceChildren();
  form.rank.value = rank;
  if (form.group) form.group.value = group;
  const query = new URLSearchParams({ namespace: form.dataset.namespace, run: form.dataset.run, rank, group });
  log = follow("/log?" + query, {
    lines: (text) => say(target, text, ""),
    note: (text) => say(target, "-- " + text, "said"),
    end: (_, stream) => stream.close(),
  });
  log.onerror = (event) => { event.target.close(); say(target, "-- connection lost; Follow starts again", "said"); };
}

document.addEventListener("submit", (event) => {
  if (event.target.id !== "log-form") return;
  event.preventDefault();
  followLog(event.target.rank.value || "0", event.target.group?.value ?? "");
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.log-of");
  if (link) followLog(link.dataset.rank, link.dataset.group ?? "");
});
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(true), 200); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
connect();
draw(true);
if (document.getElementById("log-form")) followLog("0", "");
