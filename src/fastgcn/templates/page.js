"use strict";
// Values under the pointer, legends that switch series, sorted tables. The page is complete without.
const all = (where, what) => [...where.querySelectorAll(what)];
const added = (kind) => {
  const box = document.body.appendChild(document.createElement("div"));
  box.className = kind;
  box.hidden = true;
  return box;
};
const tip = added("tip"), spot = added("spot");
tip.setAttribute("role", "status");

// The points of a picture with their texts, as boxes on the screen.
function points(svg) {
  const found = [];
  for (const group of all(svg, "[data-v]:not(.gone)")) {
    const texts = JSON.parse(group.dataset.v);
    const shapes = [...group.children];
    if (shapes.length === texts.length) {
      shapes.forEach((shape, i) => {
        const box = shape.getBoundingClientRect();
        found.push({ left: box.left, right: box.right, top: box.top, bottom: box.bottom, text: texts[i] });
      });
      continue;
    }
    const screen = group.getScreenCTM();
    const corners = (shapes[0]?.getAttribute("d") ?? "").match(/[ML][^MLZ]+/g) ?? [];
    // A point alone is written as a line of no length: its corners come twice.
    const step = Math.max(1, Math.round(corners.length / texts.length));
    texts.forEach((text, i) => {
      if (!corners[i * step]) return;
      const [x, y] = corners[i * step].slice(1).split(",").map(Number);
      const at = new DOMPoint(x, y).matrixTransform(screen);
      found.push({ left: at.x, right: at.x, top: at.y, bottom: at.y, text });
    });
  }
  return found;
}

function show(svg, event) {
  let best = null, least = 40;
  for (const box of points(svg)) {
    const across = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
    const down = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
    const far = Math.hypot(across, down);
    if (far < least) [best, least] = [box, far];
  }
  tip.hidden = spot.hidden = best === null;
  if (best === null) return;
  tip.textContent = best.text;
  const inside = best.right - best.left > 14 || best.bottom - best.top > 14;
  const x = inside ? event.clientX : (best.left + best.right) / 2;
  const y = inside ? event.clientY : (best.top + best.bottom) / 2;
  spot.hidden = inside;
  spot.style.left = `${x + scrollX - 6.5}px`;
  spot.style.top = `${y + scrollY - 6.5}px`;
  const left = Math.min(x + 14, document.documentElement.clientWidth - tip.offsetWidth - 4);
  tip.style.left = `${Math.max(4, left) + scrollX}px`;
  tip.style.top = `${Math.max(4, y - tip.offsetHeight - 12) + scrollY}px`;
}

function legend(svg) {
  const symbols = all(svg, "g[data-k] > path"), names = all(svg, "g[data-k] > text");
  const series = new Set(all(svg, "[data-s]").map((group) => group.dataset.s));
  if (series.size < 2 || symbols.length !== names.length) return;
  svg.setAttribute("role", "group");
  names.forEach((name, key) => {
    const turn = () => {
      const off = name.classList.toggle("off");
      symbols[key].classList.toggle("off", off);
      name.setAttribute("aria-pressed", String(!off));
      all(svg, `[data-s="${key}"]`).forEach((group) => group.classList.toggle("gone", off));
    };
    for (const part of [name, symbols[key]]) {
      part.classList.add("switch");
      part.addEventListener("click", turn);
    }
    name.setAttribute("role", "button");
    name.setAttribute("tabindex", "0");
    name.setAttribute("aria-pressed", "true");
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      turn();
    });
  });
}

for (const svg of all(document, "figure > svg")) {
  legend(svg);
  if (!svg.querySelector("[data-v]")) continue;
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => show(svg, event));
  svg.addEventListener("pointerleave", () => { tip.hidden = spot.hidden = true; });
}

const number = (text) => parseFloat(text.replaceAll(",", "").replace("−", "-"));

function sorted(table, column, down) {
  const rows = [...table.tBodies[0].rows];
  const text = (row) => row.cells[column].textContent;
  const numbers = rows.every((row) => !Number.isNaN(number(text(row))));
  rows.sort((a, b) => numbers ? number(text(a)) - number(text(b)) : text(a).localeCompare(text(b)));
  if (down) rows.reverse();
  table.tBodies[0].append(...rows);
}

for (const table of all(document, "table")) {
  if (table.tBodies[0].rows.length < 3) continue;
  const before = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // The third click brings back the order of the page.
      const now = { ascending: "descending", descending: "" }[head.getAttribute("aria-sort")] ?? "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (now) head.setAttribute("aria-sort", now);
      if (now) sorted(table, column, now === "descending");
      else table.tBodies[0].append(...before);
    });
  });
}

// Tables that are wider than the page say so.
const cut = () => all(document, ".wide").forEach((box) =>
  box.closest("figure").classList.toggle("cut", box.scrollWidth > box.clientWidth + 1));
addEventListener("resize", cut);
all(document, "details").forEach((part) => part.addEventListener("toggle", cut));
cut();
addEventListener("beforeprint", () => all(document, "details").forEach((part) => { part.open = true; }));
