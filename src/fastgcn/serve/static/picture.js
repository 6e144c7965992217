// The neighbourhood as a picture. A list beside it says the same to screen readers.

import { makeSvg } from './parts.js';

// Okabe and Ito's colours, which colour-blind people can tell apart.
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const OTHER = '#888888';

const GOLDEN = Math.PI * (3 - Math.sqrt(5)); // an angle at which points of a spiral spread evenly
const EDGE = 34; // pixels between a point and the border, with room for a name

export function colourOf(name, classes) {
  return COLOURS[classes.indexOf(name)] ?? OTHER;
}

// Pairs of a name and a colour; classes that share the last colour are named together.
export function colours(classes) {
  const own = classes.slice(0, COLOURS.length).map((name) => [name, colourOf(name, classes)]);
  return classes.length > own.length ? [...own, [`${classes.length - own.length} others`, OTHER]] : own;
}

// Nodes are circles in the colour of their class; `onChoose` takes the id of one that is chosen.
export function draw(place, node, classes, onChoose) {
  const [width, height] = [place.clientWidth || 600, place.clientHeight || 400];
  const points = [{ id: node.id, prediction: node.prediction.prediction }, ...node.neighbors];
  const index = new Map(points.map((each, i) => [String(each.id), i]));
  const edges = node.edges.map((ends) => ends.map((id) => index.get(String(id))));
  const at = spread(points.length, edges, width, height);
  const lines = edges.map(([a, b]) => makeSvg('line', { x1: at[a].x, y1: at[a].y, x2: at[b].x, y2: at[b].y }));
  const names = [];
  const circles = points.map((each, i) => {
    const { x, y } = at[i];
    const [name, kind, r] = [String(each.id), String(each.prediction ?? each.label), i ? 11 : 19];
    const circle = makeSvg('circle', { cx: x, cy: y, r, fill: colourOf(kind, classes), class: i ? null : 'own', onclick: () => onChoose(each.id) },
      makeSvg('title', {}, each.prediction === null ? name : `${name}: ${kind}`));
    const box = { x, y: y + r + 12, half: 3.3 * name.length };
    // A name that would cover another is left out; it appears under the pointer.
    if (names.every((other) => Math.abs(other.x - x) > other.half + box.half || Math.abs(other.y - box.y) > 12)) names.push({ ...box, name });
    return circle;
  });
  const texts = names.map(({ x, y, name }) => makeSvg('text', { x, y }, name));
  place.replaceChildren(makeSvg('svg', { viewBox: `0 0 ${width} ${height}` }, ...lines, ...circles, ...texts));
}

// Places of n points: edges pull, points push each other apart (Fruchterman and Reingold). The
// first stays in the middle. The same points get the same places each time.
function spread(n, edges, width, height) {
  const [wide, high] = [width / 2 - EDGE, height / 2 - EDGE];
  const at = Array.from({ length: n }, (_, i) => {
    const r = Math.sqrt(i / n);
    return { x: wide * r * Math.cos(i * GOLDEN), y: high * r * Math.sin(i * GOLDEN) };
  });
  const length = 0.8 * Math.sqrt(4 * wide * high / n);
  const rounds = n > 60 ? 100 : 300;
  for (let round = 0; round < rounds; round++) {
    const by = at.map(() => ({ x: 0, y: 0 }));
    const push = (a, b, force) => {
      const [x, y] = [at[a].x - at[b].x, at[a].y - at[b].y];
      const d = Math.max(Math.hypot(x, y), 1);
      const f = force(d) / d;
      by[a].x += f * x; by[a].y += f * y;
      by[b].x -= f * x; by[b].y -= f * y;
    };
    for (let a = 0; a < n; a++) for (let b = 0; b < a; b++) push(a, b, (d) => length * length / d);
    for (const [a, b] of edges) if (a !== b) push(a, b, (d) => -d * d / length);
    const most = 0.1 * Math.min(wide, high) * (1 - round / rounds);
    for (let i = 1; i < n; i++) {
      const d = Math.max(Math.hypot(by[i].x, by[i].y), 1e-9);
      const step = Math.min(d, most) / d;
      at[i].x = Math.min(wide, Math.max(-wide, at[i].x + step * by[i].x));
      at[i].y = Math.min(high, Math.max(-high, at[i].y + step * by[i].y));
    }
  }
  return at.map(({ x, y }) => ({ x: width / 2 + x, y: height / 2 + y }));
}
