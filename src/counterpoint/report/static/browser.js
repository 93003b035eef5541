"use strict";
// The dialogue browser: an index to filter and page through, blocks of dialogues opened when they are looked at.
// Everything a model wrote becomes a text node, nothing else.
(() => {
  const list = document.getElementById("list");
  if (!list) return;
  const PAGE = 50, BLOCK = 50, CLIP = 3000;
  const form = document.getElementById("filters"), pane = document.getElementById("dialogue");
  const count = document.getElementById("count"), pageLabel = document.getElementById("page");
  const back = document.getElementById("back"), forward = document.getElementById("forward");
  const KEYS = ["run", "phase", "step", "set", "id", "first", "final", "change", "replies", "tokens", "cut"];
  const CONTROL = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb])/;
  let rows = [], found = [], page = 0, chosen = -1;
  const opened = new Map();

  async function unsqueeze(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  async function dialogue(row) {
    const number = Math.floor(row.at / BLOCK);
    if (!opened.has(number)) {
      if (opened.size > 20) opened.delete(opened.keys().next().value);
      opened.set(number, unsqueeze(`block-${number}`));
    }
    return (await opened.get(number))[row.at % BLOCK];
  }

  // ---- filters ----
  const ORDERS = { recorded: null, "most replies": (a, b) => b.replies - a.replies, "most tokens": (a, b) => b.tokens - a.tokens };
  function options(name, values, titles = {}) {
    const select = form.elements[name];
    select.append(el("option", { value: "" }, "all"), ...values.map((value) => el("option", { value }, titles[value] ?? String(value))));
  }

  function filter() {
    const value = Object.fromEntries(["run", "phase", "set", "final", "change", "text", "shortest", "longest", "order"].map((n) => [n, form.elements[n].value]));
    const equal = ["run", "phase", "set", "final", "change"].filter((n) => value[n] !== "");
    found = rows.filter((row) =>
      equal.every((n) => String(row[n]) === value[n]) && (!form.elements.cut.checked || row.cut) &&
      (value.shortest === "" || row.replies >= Number(value.shortest)) && (value.longest === "" || row.replies <= Number(value.longest)) &&
      (value.text === "" || row.id.includes(value.text)));
    if (ORDERS[value.order]) found.sort(ORDERS[value.order]);
    count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} dialogues`;
    turn(0);
  }

  const CHANGE = { kept: ["✓ kept right", "good"], corrected: ["✓ corrected", "good"], harmed: ["✗ harmed", "bad"], missed: ["✗ stayed wrong", "bad"] };

  function turn(to) {
    page = Math.max(0, Math.min(to, Math.ceil(found.length / PAGE) - 1));
    list.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map((row, i) => {
      const [word, tone] = CHANGE[row.change];
      const where = [data.runs.length > 1 ? data.runs[row.run] : "", data.phases[row.phase] ?? row.phase, row.step ? `step ${row.step}` : "", `${row.replies} replies`, `${row.tokens} tokens`, row.cut ? "truncated" : ""];
      const item = el("li", { role: "option", id: `row-${page * PAGE + i}`, "aria-selected": "false" }, el("bdi", { title: row.id }, row.id), el("span", { class: tone }, word), el("small", {}, where.filter(Boolean).join(" · ")));
      item.addEventListener("click", () => choose(page * PAGE + i));
      return item;
    }));
    pageLabel.textContent = found.length ? `page ${page + 1} of ${Math.ceil(found.length / PAGE)}` : "nothing matches";
    back.disabled = page === 0;
    forward.disabled = (page + 1) * PAGE >= found.length;
    if (found.length) choose(page * PAGE, false); else pane.replaceChildren();
  }

  async function choose(i, scroll = true) {
    if (!found.length) return;
    i = Math.max(0, Math.min(i, found.length - 1));
    if (Math.floor(i / PAGE) !== page) turn(Math.floor(i / PAGE));
    chosen = i;
    for (const item of list.children) item.setAttribute("aria-selected", String(item.id === `row-${i}`));
    list.setAttribute("aria-activedescendant", `row-${i}`);
    const item = document.getElementById(`row-${i}`);
    if (scroll && item) list.scrollTop += item.getBoundingClientRect().bottom > list.getBoundingClientRect().bottom ? item.offsetHeight : item.getBoundingClientRect().top < list.getBoundingClientRect().top ? -item.offsetHeight : 0;
    const row = found[i], record = await dialogue(row);
    if (chosen === i) show(row, record);
  }

  // ---- one dialogue ----
  function text(whole) {
    const pre = el("pre", { dir: "auto" });
    const write = (part) => pre.replaceChildren(...part.split(CONTROL).map((piece, i) => (i % 2 ? el("span", { class: "ctl" }, `U+${piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`) : piece)));
    write(whole.slice(0, CLIP));
    if (whole.length <= CLIP) return pre;
    const more = el("button", { type: "button" }, `show all ${whole.length.toLocaleString("en")} characters`);
    more.addEventListener("click", () => { write(whole); more.remove(); });
    return el("div", {}, pre, more);
  }

  const signed = (v) => (v > 0 ? "+" : v < 0 ? "−" : "") + Math.abs(v).toFixed(2);
  const TONE = { right: "good", wrong: "bad", unreadable: "unsure", error: "unsure" };
  const mark = (right) => (right === undefined ? null : el("span", { class: right ? "good" : "bad" }, right ? "✓ right" : "✗ not right"));

  function reply(r, what) {
    const missing = { answer: "no answer read", verdict: "no verdict read" }[what];
    const read = r.said !== null ? `${what}: ${r.said.slice(0, 200)}` : missing ? el("span", { class: "unsure" }, missing) : null;
    const parts = [read, mark(r.right), r.reward === undefined ? null : `reward ${signed(r.reward)}`, r.advantage === undefined ? null : `advantage ${signed(r.advantage)}`, `${r.tokens} tokens`, r.finish ? el("span", { class: "unsure" }, r.finish === "length" ? "truncated" : r.finish) : null, r.left_out ? `${r.left_out.toLocaleString("en")} characters left out` : null];
    const meta = el("div", { class: "meta" });
    parts.filter((p) => p !== null).forEach((p, i) => meta.append(i ? " · " : "", p));
    return el("div", { class: "reply" }, text(r.text), meta);
  }

  function chance(move) {
    const p = 1 - move.probs[0], bar = el("span", { class: "chance", "aria-hidden": "true" }, el("i", { style: `width:${Math.round(p * 100)}%` }));
    return el("span", { class: "meta" }, bar, ` p(speak) ${p.toFixed(2)} in ${move.state}`);
  }

  function values(move) {
    if (!move.values) return null;
    const best = move.values.indexOf(Math.max(...move.values)), names = ["silent", "speak"];
    const told = move.values.map((v, i) => `${names[i] ?? `action ${i}`} ${signed(v)}`).join(", ");
    return el("span", { class: "meta" }, `worth: ${told}${move.values.every((v) => v === move.values[0]) ? "" : best === move.took ? " (the better one)" : " (not the better one)"}`);
  }

  function moveCard(move, agents) {
    const silent = move.replies.length === 0;
    const who = agents.indexOf(move.agent);
    const card = el("div", { class: silent ? "move silent" : "move", style: `--who: var(--s${(who < 0 ? 7 : who) % 8})` });
    card.append(el("header", {}, el("b", {}, `${move.agent} / ${move.role}`), el("span", {}, move.probs ? move.action : "speaks, without a choice"), move.probs ? chance(move) : null, values(move)));
    const [played, ...others] = move.replies;
    const real = el("div", {});
    if (played) real.append(reply(played, move.reads));
    if (others.length) real.append(el("details", {}, el("summary", { class: "meta" }, `${others.length} more candidates${others[0].reward === undefined ? "" : `: ${others.map((o) => signed(o.reward)).join(", ")}`}`), ...others.map((o) => reply(o, move.reads))));
    card.append(el("div", { class: move.branch && played ? "sides two" : "sides" }, real, move.branch ? branch(move.branch, agents) : null));
    return card;
  }

  function branch(b, agents) {
    const end = b.final ? el("span", { class: TONE[b.final[1]] }, ` → ${b.final[0] ?? "no answer"} (${b.final[1]})`) : null;
    return el("div", { class: "branch" }, el("h5", {}, b.title, end), ...b.moves.map((move) => moveCard(move, agents)));
  }

  function show(row, d) {
    const agents = [...new Set(d.moves.map((m) => m.agent))].sort();
    const outcome = (title, [answer, o]) => el("span", {}, `${title}: `, el("b", { class: TONE[o] }, `${answer === null ? "none" : answer.slice(0, 200)} (${o})`));
    const [word, tone] = CHANGE[d.change];
    pane.replaceChildren(
      el("h3", {}, d.id), el("div", { class: "question" }, d.question, ...d.choices.map((c, i) => `\n${"ABCDEFGHIJ"[i]}) ${c}`)),
      el("div", { class: "outcome" }, el("span", {}, "gold: ", el("b", {}, d.gold)), outcome("first", d.first), outcome("final", d.final), el("span", { class: tone }, word)),
      ...d.moves.map((move) => moveCard(move, agents)),
      ...(d.others.length ? [el("h4", {}, "Counterfactuals beside it")] : []), ...d.others.map((b) => branch(b, agents)));
    history.replaceState(null, "", `#dialogue=${row.at}`);
  }

  // ---- keys ----
  const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 };
  list.addEventListener("keydown", (event) => {
    if (event.key in steps) choose(chosen + steps[event.key]);
    else if (event.key === "ArrowRight" || event.key === "PageDown") turn(page + 1);
    else if (event.key === "ArrowLeft" || event.key === "PageUp") turn(page - 1);
    else if (event.key === "Home") choose(0);
    else if (event.key === "End") choose(found.length - 1);
    else if (event.key === "Enter") pane.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j" || event.key === "k") choose(chosen + steps[event.key]);
    if (event.key === "Escape" && pane.contains(event.target)) list.focus();
  });
  back.addEventListener("click", () => turn(page - 1));
  forward.addEventListener("click", () => turn(page + 1));
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));

  (async () => {
    rows = (await unsqueeze("index")).map((row, at) => ({ ...Object.fromEntries(KEYS.map((key, i) => [key, row[i]])), at }));
    const rank = (row) => ({ eval: 0, train: 2, untrained: 3 })[row.phase] ?? 1;
    rows.sort((a, b) => rank(a) - rank(b) || a.at - b.at);
    options("run", unique(rows, "run"), data.runs);
    options("phase", unique(rows, "phase"), data.phases);
    options("set", unique(rows, "set"));
    options("final", unique(rows, "final"));
    options("change", ["corrected", "harmed", "kept", "missed"], { kept: "kept right", missed: "stayed wrong" });
    form.elements.order.append(...Object.keys(ORDERS).map((name) => el("option", { value: name }, name)));
    const wanted = /^#dialogue=(\d+)$/.exec(location.hash);
    filter();
    if (wanted) choose(rows.findIndex((row) => row.at === Number(wanted[1])));
    document.documentElement.dataset.ready = "yes";
  })();
})();
