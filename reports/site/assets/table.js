// Sorts tables by their headings and filters them by a form, as the address says; tells listeners.
"use strict";

/** What is set in the address, behind its #, so that a view can be linked. */
const address = (() => {
  const read = () => new URLSearchParams(location.hash.slice(1));
  return {
    get: (name) => read().get(name),
    set(values) {
      // What has no value is an anchor of the page, and none of ours.
      const all = new URLSearchParams(Object.entries({ ...Object.fromEntries(read()), ...values }).filter(([, value]) => value));
      history.replaceState(null, "", `#${all}`);
    },
    /** Do it now, and whenever another view is asked for. */
    follow(act) {
      act();
      addEventListener("hashchange", () => {
        if (!location.hash || location.hash.includes("=")) act();
      });
    },
  };
})();
const ALL = "*";

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
  const measured = form.elements.published?.checked === false;
  let count = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden =
      (measured && row.dataset.kind === "published") ||
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

/** The value of a field as the address has it; what it is at first is left away. */
function fieldText(field) {
  if (field.type === "checkbox") return field.checked === field.defaultChecked ? null : String(Number(field.checked));
  const first = field.tagName === "SELECT" ? [...field.options].find((o) => o.defaultSelected)?.value ?? "" : "";
  return field.value === first ? null : field.value || ALL;
}

function readField(field) {
  const text = address.get(field.name);
  if (field.type === "checkbox") field.checked = text === null ? field.defaultChecked : text === "1";
  else if (text !== null) field.value = text === ALL ? "" : text;
  else if (field.tagName === "SELECT") field.value = [...field.options].find((o) => o.defaultSelected)?.value ?? "";
  else field.value = "";
  // A value that is not there leaves a select without any.
  if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = "";
}

/** The rows that are shown as CSV, unrounded; a ' stands before what a spreadsheet would execute. */
function csvOf(table) {
  const quoted = (text) => `"${(/^[=+@-]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const trimmed = (node) => node.textContent.replace(/\s+/g, " ").trim();
  const kept = [...table.tHead.rows[0].cells].filter((cell) => cell.querySelector("button"));
  const heads = kept.flatMap((cell) => {
    const interval = [...table.tBodies[0].rows].some((row) => row.cells[cell.cellIndex].dataset.half !== undefined);
    return interval ? [trimmed(cell), `${trimmed(cell)} ±`] : [trimmed(cell)];
  });
  const lines = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => [
    row.dataset.kind,
    trimmed(row.querySelector(".detail:not(.remark)") ?? { textContent: "" }),
    ...kept.flatMap(({ cellIndex }) => {
      const { value, half } = row.cells[cellIndex].dataset;
      const text = value ?? trimmed(row.cells[cellIndex].querySelector("a") ?? row.cells[cellIndex]).replace(/^–$/, "");
      return half === undefined ? [text] : [text, half];
    }),
  ]);
  return [["Source", "Detail", ...heads], ...lines].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells].filter((cell) => cell.querySelector("button"));
  const named = (heading) => heading.querySelector("button").textContent.trim();
  for (const heading of heads) {
    heading.querySelector("button").addEventListener("click", () => {
      sortBy(table, heading);
      address.set({ sort: `${named(heading)} ${heading.getAttribute("aria-sort")}` });
    });
  }
  const [, name, direction] = /^(.*) (ascending|descending)$/.exec(address.get("sort") ?? "") ?? [];
  const asked = heads.find((heading) => named(heading) === name);
  for (let turn = 0; asked && turn < 2 && asked.getAttribute("aria-sort") !== direction; turn += 1) sortBy(table, asked);
}
for (const form of document.querySelectorAll("form[data-filters]")) {
  const fields = [...form.querySelectorAll("select, input")];
  const changedBy = () => {
    address.set(Object.fromEntries(fields.map((field) => [field.name, fieldText(field)])));
    filterBy(form);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const field of fields) field.addEventListener(field.type === "search" ? "input" : "change", changedBy);
  form.querySelector("[data-clear]").addEventListener("click", () => {
    for (const field of fields) {
      if (field.type === "checkbox") field.checked = true;
      else field.value = "";
    }
    changedBy();
  });
  address.follow(() => {
    fields.forEach(readField);
    filterBy(form);
  });
}
document.getElementById("download")?.addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvOf(document.getElementById("leaderboard"))], { type: "text/csv" }));
  link.download = "leaderboard-shown.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
