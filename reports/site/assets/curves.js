// Draws the curves of the leaderboard's first visible rows, with a legend of buttons.
"use strict";

(() => {
  const MEASURED = 10;
  const PUBLISHED = 6;
  const SHARE = 1 / 6;
  // Seaborn's palette for the colour-blind, without the tones that vanish on white or black.
  const COLORS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#56b4e9"];
  const MARKS = [
    ["circle", "●"], ["square", "■"], ["triangle-up", "▲"], ["diamond", "◆"],
    ["triangle-down", "▼"], ["cross", "✚"], ["x", "✖"], ["triangle-left", "◀"], ["star", "★"],
  ];
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const GREY = "#8b919c";

  const table = document.getElementById("leaderboard");
  const chart = document.getElementById("chart");
  const legend = document.getElementById("legend");
  const about = document.getElementById("curves-about");
  const curves = JSON.parse(document.getElementById("curves").textContent);
  const hidden = new Set();

  /** Plotly reads tags in texts; names are shown as they are. */
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function short(text) {
    return text.length > 60 ? `${text.slice(0, 59)}…` : text;
  }

  function look(position, kind) {
    if (kind === "published") {
      return { color: GREY, symbol: MARKS[position % MARKS.length], dash: "dot", width: 1.2 };
    }
    return {
      color: COLORS[position % COLORS.length],
      symbol: MARKS[position % MARKS.length],
      dash: DASHES[position % DASHES.length],
      width: 2,
    };
  }

  function line(id, style) {
    const curve = curves[id];
    const texts = curve.mean.map((mean, i) => {
      if (mean === null) return "";
      const half = curve.half[i] === null ? "" : ` ± ${curve.half[i].toFixed(2)}`;
      return `${mean.toFixed(2)}${half} %<br>session ${curve.session[i]}, ${curve.seen[i]} classes`;
    });
    const name = plain(short(curve.name));
    return {
      x: curve.seen, y: curve.mean, text: texts, name, mode: "lines+markers",
      hovertemplate: `<b>${name}</b> (${curve.kind})<br>%{text}<extra></extra>`,
      line: { color: style.color, dash: style.dash, width: style.width },
      marker: { symbol: style.symbol[0], size: curve.kind === "published" ? 5 : 7 },
      visible: !hidden.has(id), meta: id,
    };
  }

  function band(id, style) {
    const curve = curves[id];
    const half = curve.half.map((value) => value ?? 0);
    const high = curve.mean.map((mean, i) => mean + half[i]);
    const low = curve.mean.map((mean, i) => mean - half[i]);
    return {
      x: [...curve.seen, ...[...curve.seen].reverse()], y: [...high, ...low.reverse()],
      fill: "toself", fillcolor: `${style.color}26`, line: { width: 0 }, mode: "lines",
      hoverinfo: "skip", visible: !hidden.has(id), meta: id,
    };
  }

  function layout(range) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: color("--line"), linecolor: color("--muted"), zeroline: false, automargin: true };
    return {
      paper_bgcolor: color("--page"), plot_bgcolor: color("--page"),
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("--text") },
      // A finger on the curves scrolls the page.
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      margin: { l: 50, r: 12, t: 12, b: 45 }, showlegend: false, hovermode: "closest",
      hoverlabel: { bgcolor: color("--soft"), font: { color: color("--text") } },
      xaxis: { ...axis, title: { text: "Number of classes seen" }, showgrid: false, showline: true },
      yaxis: { ...axis, title: { text: "Accuracy (%)" }, ...(range ? { range } : { autorange: true }) },
    };
  }

  /** What curves end on without those that leave the others no room: `outlying` of figures.py. */
  function near(ends) {
    const known = [...ends].sort((a, b) => a - b);
    const whole = known[known.length - 1] - known[0];
    for (let size = known.length - 1; size > known.length / 2; size -= 1) {
      const spans = known.slice(size - 1).map((high, i) => high - known[i]);
      const first = spans.indexOf(Math.min(...spans));
      if (spans[first] > 0 && spans[first] < SHARE * whole) return known.slice(first, first + size);
    }
    return known;
  }

  /** The vertical range of those curves, or null where all have room, and the names of the rest. */
  function zoom(ids) {
    const end = (id) => curves[id].mean.filter((mean) => mean !== null).at(-1);
    const kept = new Set(near(ids.map(end)));
    const off = ids.filter((id) => !kept.has(end(id)));
    const means = ids.filter((id) => kept.has(end(id))).flatMap((id) => curves[id].mean);
    const values = means.filter((mean) => mean !== null);
    const margin = 0.05 * (Math.max(...values) - Math.min(...values));
    const range = [Math.min(...values) - margin, Math.max(...values) + margin];
    return { range: off.length ? range : null, off: off.map((id) => curves[id].name) };
  }

  function button(id, style) {
    const curve = curves[id];
    const made = document.createElement("button");
    made.type = "button";
    made.title = curve.name;
    made.setAttribute("aria-pressed", String(!hidden.has(id)));
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.setAttribute("aria-hidden", "true");
    mark.style.color = style.color;
    mark.textContent = `${{ solid: "━━", dash: "╍╍", dashdot: "━·", dot: "┈┈" }[style.dash]}${style.symbol[1]}`;
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = curve.kind === "published" ? `${curve.name} (published)` : curve.name;
    made.append(mark, name);
    made.addEventListener("click", () => toggle(id, made));
    return made;
  }

  function toggle(id, made) {
    const shown = hidden.delete(id) || !hidden.add(id);
    made.setAttribute("aria-pressed", String(shown));
    const indices = chart.data.flatMap((trace, index) => (trace.meta === id ? [index] : []));
    Plotly.restyle(chart, { visible: shown }, indices);
  }

  /** Rows that are drawn: the first of each kind in the table's order, of one protocol. */
  function drawn() {
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const of = (kind, most) => rows.filter((row) => row.dataset.kind === kind).slice(0, most);
    return [...of("measured", MEASURED), ...of("published", PUBLISHED)];
  }

  function draw() {
    const rows = drawn();
    const protocols = new Set(rows.map((row) => row.dataset.protocol));
    // Sessions of different protocols have nothing in common.
    const ids = protocols.size === 1 ? rows.map((row) => Number(row.dataset.curve)) : [];
    const { range, off } = ids.length ? zoom(ids) : { range: null, off: [] };
    about.textContent = ids.length
      ? `${[...protocols][0]}: the first rows of the table as it is sorted and filtered, ` +
        `at most ${MEASURED} measured (bands are 95 % intervals) and ${PUBLISHED} published (thin, grey). ` +
        "Buttons below the curves hide and show them." +
        (off.length ? ` Far from most others and outside the axis: ${off.join(", ")} (“Autoscale” shows all).` : "")
      : protocols.size > 1 ? "Choose one protocol to see its curves." : "No row to draw.";
    const styles = ids.map((id, position) => look(position, curves[id].kind));
    const bands = ids.flatMap((id, i) => (curves[id].half.some((h) => h) ? [band(id, styles[i])] : []));
    const lines = ids.map((id, i) => line(id, styles[i]));
    legend.replaceChildren(...ids.map((id, i) => button(id, styles[i])));
    chart.hidden = ids.length === 0;
    if (ids.length === 0) return;
    // Published lines lie behind the measured ones.
    const buttons = [["toImage", "zoom2d", "pan2d", "autoScale2d", "resetScale2d"]];
    const options = { responsive: true, displaylogo: false, modeBarButtons: buttons };
    Plotly.react(chart, [...bands, ...lines.reverse()], layout(range), options);
  }

  table.addEventListener("rowschange", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
