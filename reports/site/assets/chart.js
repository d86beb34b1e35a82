// Draws curves of accuracy over classes seen as SVG, with a legend of buttons.
"use strict";

const chart = (() => {
  // Seaborn's palette for the colour-blind, without the tones that vanish on white or black.
  const COLORS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#56b4e9"];
  const MARKS = ["●", "■", "▲", "◆", "▼", "✚", "✖", "◀", "★"];
  const DASHES = [["", "━━"], ["7 4", "╍╍"], ["8 3 2 3", "━·"], ["2 3", "┈┈"]];
  const GREY = "#8b919c";
  const MARGIN = { left: 46, right: 10, top: 8, bottom: 40 };
  const NEAR = 40;

  function element(name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  function look(position, kind) {
    const published = kind === "published";
    return {
      color: published ? GREY : COLORS[position % COLORS.length],
      mark: MARKS[position % MARKS.length],
      dash: published ? DASHES[3] : DASHES[position % DASHES.length],
      width: published ? 1.2 : 2,
    };
  }

  /** Round numbers between two ends, about `most` of them. */
  function ticks(low, high, most) {
    const least = (high - low || 1) / most;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= least);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-9; i += 1) found.push(i * step);
    return found.map((value) => Number(value.toPrecision(12)));
  }

  /** What is known of a curve: [classes seen, mean, half-width, session]; null breaks the line. */
  function points(curve) {
    return curve.mean.map((mean, i) =>
      mean === null ? null : [curve.seen[i], mean, curve.half[i] ?? 0, curve.session[i]]);
  }

  function extent(values, share) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = share * (high - low) || 1;
    return [low - margin, high + margin];
  }

  function text(curve, [seen, mean, half, session]) {
    const interval = half ? ` ± ${half.toFixed(2)}` : "";
    return `${curve.name}: ${mean.toFixed(2)}${interval} % (session ${session}, ${seen} classes)`;
  }

  /** Draw curves into a place; `range` is that of the vertical axis, null for all that is drawn. */
  function plot(place, shown, range) {
    const width = Math.max(place.clientWidth, 200);
    const height = place.clientHeight || 400;
    const known = shown.flatMap(({ curve }) => points(curve)).filter(Boolean);
    const picture = element("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    place.replaceChildren(picture);
    widths.set(place, place.clientWidth);
    if (!known.length) return;
    const [left, right] = extent(known.map((point) => point[0]), 0.02);
    const [low, high] = range ?? extent(known.flatMap(([, mean, half]) => [mean - half, mean + half]), 0.03);
    const x = (value) => MARGIN.left + ((value - left) / (right - left)) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - ((value - low) / (high - low)) * (height - MARGIN.top - MARGIN.bottom);
    drawAxes(picture, { x, y, left, right, low, high, width, height });
    const clip = element("clipPath", { id: `inside-${place.id}` });
    const [top, bottom] = [MARGIN.top - 6, height - MARGIN.bottom];
    clip.append(element("rect", { x: MARGIN.left - 8, y: top, width: width - MARGIN.left, height: bottom - top }));
    const lines = element("g", { "clip-path": `url(#inside-${place.id})` });
    for (const each of shown) lines.append(...drawCurve(each, x, y));
    picture.append(clip, lines);
    tell(place, shown, x, y);
  }

  function drawAxes(picture, { x, y, left, right, low, high, width, height }) {
    for (const value of ticks(low, high, height / 60)) {
      picture.append(element("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      picture.append(element("text", { x: MARGIN.left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, String(value)));
    }
    for (const value of ticks(left, right, width / 80)) {
      picture.append(element("text", { x: x(value), y: height - MARGIN.bottom + 16, "text-anchor": "middle" }, String(value)));
    }
    const bottom = height - MARGIN.bottom;
    picture.append(element("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
    picture.append(element("text", { x: (MARGIN.left + width) / 2, y: height - 6, "text-anchor": "middle" }, "Number of classes seen"));
    const middle = (MARGIN.top + bottom) / 2;
    picture.append(element("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "Accuracy (%)"));
  }

  function drawCurve({ curve, style }, x, y) {
    const own = points(curve);
    const known = own.filter(Boolean);
    const line = own.map((point, i) => (point ? `${own[i - 1] ? "L" : "M"}${x(point[0])} ${y(point[1])}` : "")).join("");
    const path = element("path", { d: line, fill: "none", stroke: style.color, "stroke-width": style.width, "stroke-dasharray": style.dash[0] });
    const marks = known.map(([seen, mean]) =>
      element("text", { class: "mark", x: x(seen), y: y(mean), fill: style.color, "text-anchor": "middle", "dominant-baseline": "central" }, style.mark));
    const edge = (sign) => known.map(([seen, mean, half]) => `${x(seen)} ${y(mean + sign * half)}`);
    const band = known.some((point) => point[2])
      ? [element("polygon", { points: [...edge(1), ...edge(-1).reverse()].join(" "), fill: style.color, opacity: 0.15 })]
      : [];
    return [...band, path, ...marks];
  }

  /** Tell the value of the point nearest to the pointer. */
  function tell(place, shown, x, y) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    place.append(tip);
    place.onpointerleave = () => { tip.hidden = true; };
    place.onpointermove = (event) => {
      const box = place.getBoundingClientRect();
      const [px, py] = [event.clientX - box.left, event.clientY - box.top];
      const all = shown.flatMap(({ curve }) => points(curve).filter(Boolean).map((point) => [curve, point]));
      const far = ([, point]) => Math.hypot(x(point[0]) - px, y(point[1]) - py);
      const [curve, point] = all.reduce((best, each) => (far(each) < far(best) ? each : best));
      tip.hidden = far([curve, point]) > NEAR;
      tip.textContent = text(curve, point);
      tip.style.left = `${Math.min(x(point[0]), box.width - 220)}px`;
      tip.style.top = `${Math.max(0, y(point[1]) - 48)}px`;
    };
  }

  function button({ curve, style }, pressed) {
    const made = document.createElement("button");
    made.type = "button";
    made.title = curve.name;
    made.setAttribute("aria-pressed", String(pressed));
    const [mark, name] = [document.createElement("span"), document.createElement("span")];
    mark.className = "mark";
    mark.setAttribute("aria-hidden", "true");
    mark.style.color = style.color;
    mark.textContent = `${style.dash[1]}${style.mark}`;
    name.className = "name";
    name.textContent = curve.kind === "published" ? `${curve.name} (published)` : curve.name;
    made.append(mark, name);
    return made;
  }

  const hidden = new Set();
  const places = new Map();
  const widths = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.clientWidth && widths.get(target) !== target.clientWidth) places.get(target)();
    }
  });

  /** Show curves in a place with their legend; those that were hidden by a button stay so. */
  function show(place, legend, curves, range = null) {
    const styled = curves.map((curve, position) => ({ curve, style: look(position, curve.kind) }));
    // Published lines lie behind the measured ones.
    const draw = () => plot(place, styled.filter(({ curve }) => !hidden.has(curve)).reverse(), range);
    legend.replaceChildren(...styled.map((each) => {
      const made = button(each, !hidden.has(each.curve));
      made.addEventListener("click", () => {
        const visible = hidden.delete(each.curve) || !hidden.add(each.curve);
        made.setAttribute("aria-pressed", String(visible));
        draw();
      });
      return made;
    }));
    places.set(place, draw);
    draw();
    observer.observe(place);
  }

  const data = document.getElementById("curves");
  const curves = data ? JSON.parse(data.textContent) : [];
  const own = document.getElementById("chart");
  const table = document.getElementById("leaderboard");
  if (own && !table) show(own, document.getElementById("legend"), curves);
  return { show, curves };
})();
