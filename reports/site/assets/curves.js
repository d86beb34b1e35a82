// Which rows' curves are drawn: the first of the leaderboard as it is sorted and filtered.
"use strict";

/** Values without those that leave the others no room: `outlying` of figures.py. */
function near(values) {
  const SHARE = 1 / 6;
  const known = [...values].sort((a, b) => a - b);
  const whole = known[known.length - 1] - known[0];
  for (let size = known.length - 1; size > known.length / 2; size -= 1) {
    const spans = known.slice(size - 1).map((high, i) => high - known[i]);
    const first = spans.indexOf(Math.min(...spans));
    if (spans[first] > 0 && spans[first] < SHARE * whole) return known.slice(first, first + size);
  }
  return known;
}

(() => {
  const MEASURED = 10;
  const PUBLISHED = 6;
  const [table, place, legend, about] = ["leaderboard", "chart", "legend", "curves-about"].map((id) => document.getElementById(id));

  /** The vertical range of those curves, or null where all have room, and the names of the rest. */
  function zoom(curves) {
    const end = (curve) => curve.mean.filter((mean) => mean !== null).at(-1);
    const kept = new Set(near(curves.map(end)));
    const off = curves.filter((curve) => !kept.has(end(curve)));
    const means = curves.filter((curve) => kept.has(end(curve))).flatMap((curve) => curve.mean);
    const values = means.filter((mean) => mean !== null);
    const margin = 0.05 * (Math.max(...values) - Math.min(...values));
    const range = [Math.min(...values) - margin, Math.max(...values) + margin];
    return { range: off.length ? range : null, off: off.map((curve) => curve.name) };
  }

  /** Let the bars of visible rows fill their column, but for rows far from the others. */
  function scaleBars(rows) {
    const bars = rows.flatMap((row) => [...row.querySelectorAll(".bar span")]);
    const value = (bar, name) => Number(bar.style.getPropertyValue(name));
    const kept = new Set(near(bars.map((bar) => value(bar, "--m"))));
    const shown = bars.filter((bar) => kept.has(value(bar, "--m")));
    if (!shown.length) return;
    const low = Math.min(...shown.map((bar) => value(bar, "--m") - value(bar, "--h")));
    const high = Math.max(...shown.map((bar) => value(bar, "--m") + value(bar, "--h")));
    table.style.setProperty("--low", low - 0.05 * (high - low || 1));
    table.style.setProperty("--high", high + 0.05 * (high - low || 1));
  }

  function draw() {
    const visible = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const of = (kind, most) => visible.filter((row) => row.dataset.kind === kind).slice(0, most);
    const rows = [...of("measured", MEASURED), ...of("published", PUBLISHED)];
    const protocols = new Set(visible.map((row) => row.dataset.protocol));
    table.classList.toggle("one-protocol", protocols.size === 1);
    scaleBars(visible);
    // Sessions of different protocols have nothing in common.
    const curves = protocols.size === 1 ? rows.map((row) => chart.curves[Number(row.dataset.curve)]) : [];
    const { range, off } = curves.length ? zoom(curves) : { range: null, off: [] };
    about.textContent = curves.length
      ? `${[...protocols][0]}: the first rows of the table as it is sorted and filtered, ` +
        `at most ${MEASURED} measured (bands are 95 % intervals) and ${PUBLISHED} published (thin, grey). ` +
        "Buttons below the curves hide and show them." +
        (off.length ? ` Far from most others and outside the axis: ${off.join(", ")}.` : "")
      : protocols.size > 1 ? "Choose one protocol to see its curves." : "No row to draw.";
    place.hidden = curves.length === 0;
    chart.show(place, legend, curves, range);
  }

  table.addEventListener("rowschange", draw);
  draw();
})();
