"use strict";
const form = document.getElementById("filter");

function chosen(name) {
  return new Set([...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value));
}

// Findings that match; a hunk of the diff stays where one of its codes does, a file where anything in it does.
function apply() {
  const codes = chosen("code"), outcomes = chosen("outcome"), text = form.elements.text.value.trim().toLowerCase();
  const isAll = form.querySelector("input[type=checkbox]:not(:checked)") === null && text === "";
  let shown = 0, total = 0;
  for (const file of document.querySelectorAll("section.file")) {
    const inPath = file.dataset.path.toLowerCase().includes(text);
    const present = new Set();
    for (const finding of file.querySelectorAll(".finding")) {
      const matches = codes.has(finding.dataset.code) && outcomes.has(finding.dataset.outcome) &&
        (inPath || finding.textContent.toLowerCase().includes(text));
      finding.hidden = !matches;
      total += 1;
      if (matches) { shown += 1; present.add(finding.dataset.code); }
    }
    let hunks = 0;
    for (const hunk of file.querySelectorAll(".diff tbody")) {
      hunk.hidden = !isAll && !hunk.dataset.codes.split(" ").some((code) => present.has(code));
      hunks += hunk.hidden ? 0 : 1;
    }
    const diff = file.querySelector(".diff");
    if (diff) diff.hidden = hunks === 0;
    file.hidden = !isAll && present.size === 0;
  }
  document.getElementById("shown").value = `${shown} of ${total} findings`;
  document.getElementById("nothing").hidden = shown > 0 || isAll;
}

// What was chosen stands in the address, so that a filtered view can be bookmarked and passed on: #code=FM301,FM302
function readAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const isChoice = told.has("code") || told.has("outcome") || told.has("text");
  if (isChoice) for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = true;
  if (isChoice) form.elements.text.value = "";
  for (const name of ["code", "outcome"]) {
    if (!told.has(name)) continue; // an anchor of a line, say: the choice stays
    const wanted = new Set(told.get(name).split(","));
    for (const box of form.querySelectorAll(`input[name=${name}]`)) box.checked = wanted.has(box.value);
  }
  if (told.has("text")) form.elements.text.value = told.get("text");
  return isChoice;
}

function writeAddress() {
  const told = new URLSearchParams();
  for (const name of ["code", "outcome"]) {
    if (form.querySelector(`input[name=${name}]:not(:checked)`)) told.set(name, [...chosen(name)].join(","));
  }
  if (form.elements.text.value) told.set("text", form.elements.text.value);
  history.replaceState(null, "", "#" + told.toString());
}

if (form) {
  form.hidden = false;
  form.addEventListener("input", () => { apply(); writeAddress(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of form.querySelectorAll("button[data-all]")) {
    button.addEventListener("click", () => {
      for (const box of form.querySelectorAll("input[name=code]")) box.checked = button.dataset.all === "1";
      apply();
      writeAddress();
    });
  }
  window.addEventListener("hashchange", () => {
    const isChoice = readAddress();
    apply();
    if (isChoice) form.scrollIntoView();
  });
  readAddress();
  apply();
}
