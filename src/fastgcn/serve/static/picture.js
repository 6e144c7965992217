// The neighbourhood as a picture, by Cytoscape. A list beside it says the same to screen readers.

import cytoscape from '/static/cytoscape.esm.min.mjs';

// Okabe and Ito's colours, which colour-blind people can tell apart.
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const OTHER = '#888888';

let drawn = null;

export function colourOf(name, classes) {
  return COLOURS[classes.indexOf(name)] ?? OTHER;
}

// Pairs of a name and a colour; classes that share the last colour are named together.
export function colours(classes) {
  const own = classes.slice(0, COLOURS.length).map((name) => [name, colourOf(name, classes)]);
  return classes.length > own.length ? [...own, [`${classes.length - own.length} others`, OTHER]] : own;
}

export function draw(place, node, classes, onChoose) {
  if (drawn) drawn.destroy();
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const ids = new Map();
  const points = [{ id: node.id, prediction: node.prediction.prediction }, ...node.neighbors].map((each, i) => {
    ids.set(String(each.id), `n${i}`);
    return { data: { id: `n${i}`, name: String(each.id), colour: colourOf(String(each.prediction ?? each.label), classes), size: i ? 22 : 38 } };
  });
  const lines = node.edges.map(([a, b], i) => ({ data: { id: `e${i}`, source: ids.get(String(a)), target: ids.get(String(b)) } }));
  drawn = cytoscape({
    container: place,
    elements: [...points, ...lines],
    // The wheel and a finger scroll the page.
    userZoomingEnabled: false, userPanningEnabled: matchMedia('(pointer: fine)').matches,
    layout: {
      name: points.length > 1 ? 'cose' : 'grid', animate: false, padding: 30, nodeRepulsion: () => 12000, idealEdgeLength: () => 70,
      randomize: true, numIter: points.length > 60 ? 300 : 900,
    },
    style: [
      { selector: 'node', style: {
        'background-color': 'data(colour)', width: 'data(size)', height: 'data(size)', label: 'data(name)',
        color: of('--ink'), 'font-size': 11, 'text-valign': 'bottom', 'text-margin-y': 3, 'min-zoomed-font-size': 7,
        'text-outline-color': of('--card'), 'text-outline-width': 2 } },
      { selector: '#n0', style: { 'border-width': 4, 'border-color': of('--ink'), 'font-weight': 'bold', 'font-size': 13 } },
      { selector: 'edge', style: { width: 1, 'line-color': of('--soft'), opacity: 0.5, 'curve-style': 'haystack' } },
    ],
  });
  drawn.on('tap', 'node', (event) => onChoose(event.target.data('name')));
  return drawn;
}
