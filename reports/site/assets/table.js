// Sorts tables by their headings, and filters them by a form; both tell whoever listens.
"use strict";

const MISSING = "";

/** What a cell is sorted by: a number where it has one, else its text; "" where it has neither. */
function cellValue(row, column) {
  const cell = row.cells[column];
  const given = cell.dataset.value;
  if (given === undefined) {
    const text = cell.textContent.trim();
    return text === "–" ? MISSING : text.toLowerCase();
  }
  return given === "" || Number.isNaN(Number(given)) ? MISSING : Number(given);
}

/** Order of two values; what is missing comes last in either direction. */
function order(a, b, direction) {
  if (a === MISSING || b === MISSING) return (a === MISSING) - (b === MISSING);
  const sign = direction === "ascending" ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortBy(table, heading) {
  const button = heading.querySelector("button");
  const now = heading.getAttribute("aria-sort");
  const opposite = { ascending: "descending", descending: "ascending" };
  const direction = now ? opposite[now] : button.dataset.first;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", direction);
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [cellValue(row, heading.cellIndex), row]);
  keyed.sort((a, b) => order(a[0], b[0], direction));
  body.append(...keyed.map(([, row]) => row));
  changed(table);
}

function filterBy(form) {
  const table = document.getElementById(form.dataset.filters);
  const wanted = [...form.querySelectorAll("select")].filter((s) => s.value !== "");
  const words = form.elements.search.value.toLowerCase();
  let count = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden =
      wanted.some((select) => row.dataset[select.name] !== select.value) ||
      !row.textContent.toLowerCase().includes(words);
    count += row.hidden ? 0 : 1;
  }
  const total = table.tBodies[0].rows.length;
  const text = count === total ? `${total} rows` : `${count} of ${total} rows`;
  document.querySelector(`[data-count="${table.id}"]`).textContent = text;
  document.querySelector(`[data-none="${table.id}"]`).hidden = count > 0;
  changed(table);
}

function changed(table) {
  table.dispatchEvent(new CustomEvent("rowschange"));
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
  }
}
for (const form of document.querySelectorAll("form[data-filters]")) {
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const select of form.querySelectorAll("select")) {
    select.addEventListener("change", () => filterBy(form));
  }
  form.elements.search.addEventListener("input", () => filterBy(form));
  form.querySelector("[data-clear]").addEventListener("click", () => {
    for (const field of form.querySelectorAll("select, input")) field.value = "";
    filterBy(form);
  });
  filterBy(form);
}
