// Compares two rows of the leaderboard, paired by seeds where they stand on equal terms.
"use strict";

(() => {
  const table = document.getElementById("leaderboard");
  const section = document.getElementById("compare");
  const about = document.getElementById("compare-about");
  const { figures, t, rows } = JSON.parse(document.getElementById("runs-data").textContent);
  const text = (value) => (value === null || Number.isNaN(value) ? "–" : value.toFixed(2).replace("-", "−"));
  const signed = (value) => (value > 0 ? `+${text(value)}` : text(value));
  let picked = [];

  /** Mean and half-width of the differences over shared seeds, as `paired_interval` has them. */
  function difference(one, two, figure) {
    const shared = one.equal && one.equal === two.equal ? Object.keys(one.runs).filter((key) => key in two.runs) : [];
    const apart = shared.map((key) => one.runs[key][figure] - two.runs[key][figure]);
    if (!apart.length || one.means[figure] === null || two.means[figure] === null) {
      const known = one.means[figure] !== null && two.means[figure] !== null;
      return { n: 0, mean: known ? one.means[figure] - two.means[figure] : null };
    }
    const mean = apart.reduce((sum, each) => sum + each, 0) / apart.length;
    const square = apart.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (apart.length - 1);
    return { n: apart.length, mean, half: apart.length > 1 ? t[apart.length - 2] * Math.sqrt(square / apart.length) : null };
  }

  function line(cells, tag = "td") {
    const row = document.createElement("tr");
    row.append(...cells.map((cell, i) => {
      const made = document.createElement(i ? tag : "th");
      if (!i) made.scope = "row";
      if (i) made.className = "number";
      made.textContent = cell;
      return made;
    }));
    return row;
  }

  function show() {
    section.hidden = picked.length !== 2;
    if (section.hidden) return;
    const [one, two] = picked.map((id) => rows[id]);
    const found = figures.map((_, figure) => difference(one, two, figure));
    const pairs = Math.max(...found.map(({ n }) => n));
    about.textContent = `${one.name} minus ${two.name}, in points. ` + (pairs > 1
      ? `± is the half-width of the 95 % interval over ${pairs} pairs that share their seeds.`
      : pairs ? "One pair shares its seeds: no interval." : "They do not stand on equal terms or share no seed: no interval, and the difference is not the methods' alone.");
    const compared = document.getElementById("compared");
    compared.tHead.replaceChildren(line(["", one.name, two.name, "Difference"], "th"));
    compared.tBodies[0].replaceChildren(...figures.map((heading, i) => {
      const { mean, half } = found[i];
      const interval = half === undefined || half === null ? "" : ` ± ${text(half)}`;
      return line([heading, text(one.means[i]), text(two.means[i]), mean === null ? "–" : signed(mean) + interval]);
    }));
  }

  function pick(ids) {
    picked = ids.slice(-2);
    for (const row of table.tBodies[0].rows) row.querySelector("[name=pick]").checked = picked.includes(Number(row.dataset.curve));
    show();
  }

  table.addEventListener("change", (event) => {
    if (event.target.name !== "pick") return;
    const id = Number(event.target.closest("tr").dataset.curve);
    pick(event.target.checked ? [...picked, id] : picked.filter((each) => each !== id));
    address.set({ compare: picked.map((each) => rows[each].page).join(",") });
  });
  address.follow(() => {
    const pages = (address.get("compare") ?? "").split(",");
    pick(rows.flatMap((row, id) => (pages.includes(row.page) ? [id] : [])));
  });
})();
