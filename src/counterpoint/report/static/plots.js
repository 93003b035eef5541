"use strict";
// Draws every figure of the page from its rows. Plots are SVG, drawn again when the width or the theme changes.
const data = JSON.parse(document.getElementById("data").textContent);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColor = (i) => color(`--s${i % 8}`);
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "12 4"];
const number = (v) => (v === null || v === undefined ? "–" : Number.isInteger(v) ? v.toLocaleString("en") : Math.abs(v) < 0.001 && v !== 0 ? v.toExponential(1) : v.toFixed(3));

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const unique = (rows, key) => [...new Set(rows.map((row) => row[key]))];

function legend(names, symbol) {
  if (names.length < 2 && !names[0]) return null;
  return el("div", { class: "legend" }, ...names.map((name, i) => el("span", {}, symbol(i), name)));
}

function swatch(i, dash) {
  const svg = d3.create("svg").attr("width", 26).attr("height", 10).attr("aria-hidden", "true");
  svg.append("line").attr("x1", 1).attr("x2", 25).attr("y1", 5).attr("y2", 5).attr("stroke", seriesColor(i)).attr("stroke-width", 2.5).attr("stroke-dasharray", dash);
  return svg.node();
}

function block(i) {
  const svg = d3.create("svg").attr("width", 12).attr("height", 12).attr("aria-hidden", "true");
  svg.append("rect").attr("width", 12).attr("height", 12).attr("rx", 2).attr("fill", seriesColor(i));
  return svg.node();
}

// One plot a panel, side by side as far as they fit.
function panels(figure, box, least, draw) {
  const names = unique(figure.rows, "panel");
  const total = box.clientWidth;
  const columns = Math.max(1, Math.min(names.length, Math.floor(total / least)));
  const width = Math.floor((total - (columns - 1) * 19) / columns);
  const grid = el("div", { class: "panels", style: `grid-template-columns: repeat(${columns}, minmax(0, 1fr))` });
  for (const name of names) {
    const rows = figure.rows.filter((row) => row.panel === name);
    grid.append(el("div", { class: "panel" }, name ? el("h4", {}, name) : null, draw(rows, width, name)));
  }
  box.append(grid);
}

const base = (width, more) => ({ width, style: { background: "transparent", color: "var(--ink)", fontFamily: "inherit" }, ...more });
const axisTicks = (width) => Math.max(2, Math.min(8, Math.floor(width / 70)));

function yDomain(rows, options) {
  const values = rows.flatMap((row) => [row.y, row.low ?? row.y, row.high ?? row.y]);
  let [low, high] = d3.extent(options.rule === undefined ? values : [...values, options.rule]);
  if (options.share) low = 0;
  if (high - low < 1e-9) [low, high] = [low - (options.share ? 0 : 0.05), high + 0.05];
  return [low, high];
}

const drawers = {
  lines(figure, box) {
    const { options } = figure;
    const series = unique(figure.rows, "series");
    const dash = (name, i) => (options.dashed ? (name === options.dashed ? "5 4" : "") : DASHES[Math.floor(i / 8) + (i % 5)] ?? "");
    box.append(legend(series, (i) => swatch(i, dash(series[i], i))) ?? "");
    panels(figure, box, 300, (rows, width) => {
      const marks = options.rule === undefined ? [] : [Plot.ruleY([options.rule], { stroke: color("--grid") })];
      series.forEach((name, i) => {
        const own = rows.filter((row) => row.series === name);
        const style = { stroke: seriesColor(i), strokeWidth: 1.9, strokeDasharray: dash(name, i) };
        marks.push(Plot.lineY(own, { x: "x", y: "y", ...style }));
        if (own.length <= 24) marks.push(Plot.dot(own, { x: "x", y: "y", r: 2.4, fill: seriesColor(i) }));
      });
      marks.push(Plot.tip(rows, Plot.pointer({ x: "x", y: "y", title: (r) => `${r.series || r.panel}\n${options.x} ${number(r.x)}: ${number(r.y)}`, fill: color("--card") })));
      return Plot.plot(base(width, { height: 216, marginLeft: 50, marginBottom: 42, x: { label: options.x, labelOffset: 36, ticks: axisTicks(width), tickFormat: "~s" }, y: { label: null, grid: true, nice: true, domain: yDomain(rows, options) }, marks }));
    });
  },

  intervals(figure, box) {
    const { options } = figure;
    const teams = unique(figure.rows, "y");
    const lows = figure.rows.flatMap((r) => [r.low, r.high, r.first ?? r.low]);
    const domain = options.rule === undefined ? d3.extent(lows) : d3.extent([...lows, options.rule]);
    panels(figure, box, 340, (rows, width) => {
      const fill = (r) => seriesColor(teams.indexOf(r.y));
      const left = Math.min(width * 0.42, 24 + 6.6 * d3.max(teams, (t) => t.length));
      const cut = Math.floor((left - 14) / 6.4);
      return Plot.plot(base(width, {
        height: 62 + 26 * unique(rows, "y").length, marginLeft: left, marginRight: 18, marginBottom: 42, marginTop: 8,
        x: { label: options.x, labelOffset: 36, grid: true, domain, nice: true, ticks: axisTicks(width - left) },
        y: { label: null, domain: unique(rows, "y"), tickSize: 0, tickFormat: (t) => (t.length > cut ? `${t.slice(0, cut - 1)}…` : t) },
        marks: [
          options.rule === undefined ? null : Plot.ruleX([options.rule], { stroke: color("--grid") }),
          Plot.ruleY(rows, { y: "y", x1: "low", x2: "high", stroke: fill, strokeWidth: 2.5 }),
          Plot.dot(rows, { y: "y", x: "value", fill, r: 5 }),
          Plot.dot(rows.filter((r) => r.first !== undefined), { y: "y", x: "first", stroke: fill, r: 4, strokeWidth: 1.5 }),
          Plot.tip(rows, Plot.pointerY({ x: "value", y: "y", fill: color("--card"), title: (r) => `${r.y}\n${number(r.value)} [${number(r.low)}, ${number(r.high)}]` })),
        ],
      }));
    });
  },

  scatter(figure, box) {
    const { options } = figure;
    const series = unique(figure.rows, "series");
    box.append(legend(series, block) ?? "");
    panels(figure, box, 320, (rows, width) => {
      const fill = (r) => seriesColor(series.indexOf(r.series));
      const front = rows.filter((r) => r.front).sort((a, b) => a.x - b.x);
      return Plot.plot(base(width, {
        height: 250, marginLeft: 46, marginBottom: 42,
        x: { label: options.x, labelOffset: 36, grid: true, nice: true, zero: true, ticks: axisTicks(width) },
        y: { label: options.y, grid: true, nice: true, domain: yDomain(rows, options) },
        marks: [
          Plot.line(front, { x: "x", y: "y", stroke: color("--soft"), strokeDasharray: "4 3" }),
          Plot.ruleX(rows, { x: "x", y1: "low", y2: "high", stroke: fill, strokeWidth: 1.5 }),
          Plot.dot(rows, { x: "x", y: "y", fill, r: 5.5 }),
          Plot.tip(rows, Plot.pointer({ x: "x", y: "y", fill: color("--card"), title: (r) => `${r.series}\n${number(r.y)} for ${number(Math.round(r.x))} tokens${r.front ? "\non the front" : ""}` })),
        ],
      }));
    });
  },

  bars(figure, box) {
    const series = unique(figure.rows, "series");
    box.append(legend(series, block) ?? "");
    panels(figure, box, 340, (rows, width) => {
      const labels = unique(rows, "y");
      const left = labels.length > 1 ? Math.min(width * 0.4, 20 + 7 * d3.max(labels, (t) => t.length)) : 14;
      return Plot.plot(base(width, {
        height: 46 + 34 * labels.length, marginLeft: left,
        x: { label: null, grid: true, tickFormat: "~s", ticks: axisTicks(width - left) }, y: { label: null, tickSize: 0, domain: labels, tickFormat: labels.length > 1 ? undefined : () => "" },
        marks: [
          Plot.barX(rows, Plot.stackX({ x: "value", y: "y", z: "series", order: series, fill: (r) => seriesColor(series.indexOf(r.series)), insetTop: 2, insetBottom: 2 })),
          Plot.tip(rows, Plot.pointer(Plot.stackX({ x: "value", y: "y", z: "series", order: series, fill: color("--card"), title: (r) => `${r.series}: ${number(r.value)}` }))),
        ],
      }));
    });
  },

  heat(figure, box) {
    const most = d3.max(figure.rows, (r) => r.visits) || 1;
    const shade = d3.interpolateRgbBasis([color("--silent"), color("--even"), color("--speak")]);
    const scale = el("span", { style: `display:inline-block;width:9rem;height:.8rem;border-radius:3px;background:linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(shade).join(",")})` });
    box.append(el("div", { class: "legend" }, el("span", {}, "silent 0", scale, "1 speaks")));
    const rank = (state) => { const votes = /votes=([+-]\d+)/.exec(state); return (/last/.test(state) ? 100 : 0) + (votes ? Number(votes[1]) : -50); };
    panels(figure, box, 420, (rows, width) => {
      const states = unique(rows, "y").sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
      const steps = unique(rows, "x").sort((a, b) => a - b);
      const short = (state) => state.replace("votes=", "votes ").replace(" round=", ", ");
      const left = 20 + 6.6 * d3.max(states, (s) => short(s).length);
      const thick = (r) => 0.25 + 0.75 * Math.sqrt(r.visits / most);
      const plot = Plot.plot(base(width, {
        height: 48 + 24 * states.length, marginLeft: left, marginRight: 44, marginTop: 8, marginBottom: 40,
        x: { type: "band", domain: steps, padding: 0.04, label: figure.options.x, ticks: steps.filter((_, i) => i % Math.ceil(steps.length / 10) === 0) },
        y: { type: "band", domain: states, padding: 0, label: null, tickSize: 0, tickFormat: short },
        marks: [
          Plot.cell(rows, { x: "x", y: "y", fill: (r) => shade(r.p), className: "cells" }),
          Plot.text(rows.filter((r) => r.x === steps.at(-1)), { x: "x", y: "y", text: (r) => r.visits.toLocaleString("en"), textAnchor: "start", dx: (width - left - 44) / steps.length / 2 + 6, fill: color("--soft") }),
          Plot.tip(rows, Plot.pointer({ x: "x", y: "y", fill: color("--card"), title: (r) => `${short(r.y)}\nstep ${r.x}: speaks ${number(r.p)}\n${r.visits} visits so far` })),
        ],
      }));
      d3.select(plot).selectAll(".cells rect").each(function (i) { // a bar as high as the state is well known
        const [y, height] = [Number(this.getAttribute("y")), Number(this.getAttribute("height"))];
        const kept = height * thick(rows[i]) - 1;
        d3.select(this).attr("height", kept).attr("y", y + (height - kept) / 2);
      });
      return plot;
    });
  },

  flow(figure, box) {
    const names = { right: "right", wrong: "wrong", unreadable: "unreadable", error: "not graded" };
    const tone = (from, to) => (from === "right" ? (to === "right" ? "--s0" : "--bad") : to === "right" ? "--good" : "--s7");
    panels(figure, box, 300, (rows, width) => {
      const height = 200, left = 92, right = width - 92, top = 20;
      const total = d3.sum(rows, (r) => r.n);
      const order = Object.keys(names);
      const gap = 8, room = height - top - gap * (order.length - 1), size = (n) => (n / total) * room;
      const svg = d3.create("svg").attr("viewBox", [0, 0, width, height + 4]).attr("width", width).attr("height", height + 4);
      const place = (key) => {
        let y = top;
        return new Map(order.flatMap((name) => {
          const n = d3.sum(rows.filter((r) => r[key] === name), (r) => r.n);
          const item = { n, y, used: 0 };
          y += n ? size(n) + gap : 0;
          return n ? [[name, item]] : [];
        }));
      };
      const sides = [[place("from"), left, "end", -8, "first"], [place("to"), right, "start", 8, "final"]];
      const middle = (left + right) / 2;
      for (const from of order) for (const to of order) {
        const row = rows.find((r) => r.from === from && r.to === to);
        if (!row) continue;
        const [a, b] = [sides[0][0].get(from), sides[1][0].get(to)], h = size(row.n);
        const [y0, y1] = [a.y + a.used, b.y + b.used];
        a.used += h; b.used += h;
        svg.append("path").attr("d", `M${left},${y0}C${middle},${y0} ${middle},${y1} ${right},${y1}L${right},${y1 + h}C${middle},${y1 + h} ${middle},${y0 + h} ${left},${y0 + h}Z`)
          .attr("fill", color(tone(from, to))).attr("fill-opacity", 0.55).append("title").text(`${row.n} of ${total}: ${names[from]} to ${names[to]}`);
      }
      for (const [items, x, anchor, dx, title] of sides) {
        svg.append("text").attr("x", x).attr("y", 10).attr("text-anchor", anchor).attr("dx", dx).attr("fill", color("--soft")).text(title);
        for (const [name, item] of items) {
          svg.append("rect").attr("x", x - 2).attr("y", item.y).attr("width", 4).attr("height", size(item.n)).attr("fill", "var(--ink)");
          svg.append("text").attr("x", x).attr("dx", dx).attr("y", item.y + size(item.n) / 2).attr("dy", "0.35em").attr("text-anchor", anchor).attr("fill", "var(--ink)").text(`${names[name]} ${item.n}`);
        }
      }
      const moved = (test) => d3.sum(rows.filter(test), (r) => r.n);
      const [good, bad] = [moved((r) => r.from !== "right" && r.to === "right"), moved((r) => r.from === "right" && r.to !== "right")];
      const first = moved((r) => r.from === "right");
      const words = el("div", { class: "moved" }, el("span", { class: "good" }, `corrected ${good} of ${total - first}`), el("span", { class: "bad" }, `harmed ${bad} of ${first}`));
      return el("div", {}, svg.node(), words);
    });
  },
};

function drawAll() {
  for (const figure of data.figures) {
    const box = document.getElementById(`plot-${figure.id}`);
    box.replaceChildren();
    drawers[figure.kind](figure, box);
  }
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
}

function fillTable(details) {
  if (details.querySelector("table")) return;
  const { rows } = data.figures.find((figure) => figure.id === details.dataset.figure);
  const keys = Object.keys(rows[0]).filter((key) => rows.some((row) => row[key] !== ""));
  const cell = (value) => (typeof value === "number" ? number(value) : String(value));
  const body = rows.slice(0, 400).map((row) => el("tr", {}, ...keys.map((key) => el("td", {}, cell(row[key])))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...keys.map((key) => el("th", { scope: "col" }, key)))), el("tbody", {}, ...body));
  details.append(el("div", { class: "scroll", tabindex: 0 }, table), rows.length > 400 ? `the first 400 of ${rows.length} rows` : "");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.documentElement.style.colorScheme = theme;
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  drawAll();
});
for (const details of document.querySelectorAll("details.rows")) details.addEventListener("toggle", () => fillTable(details));
let drawnAt = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth !== drawnAt) { drawnAt = document.documentElement.clientWidth; drawAll(); }
});
drawAll();
