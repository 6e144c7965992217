// Small parts of the page. Text from the service is only ever text, never markup.

export const $ = (id) => document.getElementById(id);

export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const makeSvg = (tag, attributes = {}, ...children) => filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') element.addEventListener('click', value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => child instanceof Node ? child : String(child)));
  return element;
}

export function shown(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'number' || Number.isInteger(value)) return String(value);
  if (Math.abs(value) < 1e-6) return '0'; // what rounding has left
  return String(Number(value.toPrecision(4)));
}

export const percent = (p) => `${(100 * p).toFixed(p > 0.9995 || p < 0.0005 ? 2 : 1)} %`;

export const signed = (x) => `${x < 0 ? '−' : '+'}${Math.abs(x).toPrecision(3)}`;

// A cell with a number and its sign, in its colour.
export const effect = (x, text = signed(x)) => ({ text, kind: `number ${x < 0 ? 'down' : 'up'}` });

// Probabilities by class, the largest first; of a regression there are none.
export function chances(row) {
  return Object.entries(row).filter(([name]) => name.startsWith('p_'))
    .map(([name, p]) => [name.slice(2), p]).sort((a, b) => b[1] - a[1]);
}

export function bars(row, most = 12) {
  const all = chances(row);
  const found = all.slice(0, most).map(([name, p]) => {
    const meter = make('meter', { min: 0, max: 1, value: p, 'aria-label': `Probability of ${name}` });
    return make('div', { class: 'bar' }, make('span', {}, name), meter, make('span', {}, percent(p)));
  });
  if (all.length > most) found.push(make('p', { class: 'hint' }, `and ${all.length - most} less probable classes`));
  return found;
}

export const answerOf = (row) => shown(row.prediction === '' ? 'no label' : row.prediction);

export function notesOf(notes) {
  return (notes ?? []).map((note) => make('p', { class: 'hint' }, note));
}

// Cells are texts, or the objects that `effect` makes; a column of those has its head at the right.
export function table(head, rows, caption) {
  const first = rows[0] ?? [];
  const cell = (each) => make('td', { class: each.kind }, each.text ?? each);
  return make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    make('table', {},
      make('thead', {}, make('tr', {}, ...head.map((name, i) => make('th', { scope: 'col', class: first[i]?.kind ? 'number' : null }, name)))),
      make('tbody', {}, ...rows.map((row) => make('tr', {}, ...row.map(cell))))));
}

// Before and after, class by class.
export function change(before, after) {
  const old = Object.fromEntries(chances(before));
  const found = [make('p', { class: 'answer' }, 'Before ', make('b', {}, answerOf(before)), ', after ', make('b', {}, answerOf(after)))];
  const rows = chances(after).map(([name, p]) => ({ name, p, by: p - old[name] }))
    .sort((a, b) => Math.abs(b.by) - Math.abs(a.by)).slice(0, 8)
    .map(({ name, p, by }) => [name, percent(old[name]), percent(p), effect(by, `${by < 0 ? '−' : '+'}${(100 * Math.abs(by)).toFixed(2)}`)]);
  if (rows.length) found.push(table(['class', 'before', 'after', 'points'], rows, 'Probabilities before and after'));
  return found;
}

export function download(name, text) {
  const href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  return make('a', { download: name, href }, `Save ${name}`);
}

// The first rows of CSV text in which every quote inside a cell is doubled.
export function csvRows(text, most) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== ',') {
      if (end === '' || rows.length > most) break;
      rows.push([]);
    }
  }
  return rows.filter((row) => row.length > 1);
}
