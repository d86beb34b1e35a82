// Copies the command of a button to the clipboard, and says so.
"use strict";

/** Where a page may not use the clipboard, as from some files, a selection is copied. */
function copySelected(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = button.dataset.copy;
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const before = button.textContent;
  button.textContent = done || copySelected(text) ? "Copied" : "Not copied";
  button.focus();
  setTimeout(() => { button.textContent = before; }, 1500);
});
