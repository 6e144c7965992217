// The page: find a node, see why, try changes, add a node, upload files.

import { Refused, get, keepToken, post, postForCsv } from './api.js';
import { $, answerOf, bars, change, csvRows, download, effect, make, makeSvg, notesOf, shown, table } from './parts.js';
import { colours, draw } from './picture.js';

let model = null;
let node = null;

const say = (text) => { $('status').textContent = text; };

function fail(error) {
  if (error instanceof Refused && error.status === 401) {
    $('main').hidden = true;
    $('token-form').hidden = false;
    $('token').focus();
    return;
  }
  $('error').textContent = error.message;
  $('error').hidden = false;
  say('');
}

// What a form does, with its failure shown and its button off meanwhile.
function onSubmit(id, work) {
  $(id).addEventListener('submit', async (event) => {
    event.preventDefault();
    $('error').hidden = true;
    const buttons = $(id).querySelectorAll('button');
    for (const each of buttons) each.disabled = true;
    try {
      await work();
    } catch (error) {
      fail(error);
    } finally {
      for (const each of buttons) each.disabled = false;
    }
  });
}

// The model.

async function start() {
  try {
    model = await get('/model');
  } catch (error) {
    $('about').textContent = '';
    fail(error);
    return;
  }
  $('token-form').hidden = true;
  $('main').hidden = false;
  $('error').hidden = true;
  const what = model.classes ? `${model.classes.length} classes` : 'a number';
  $('about').textContent = `Run ${model.run} on ${model.dataset}: ${model.nodes.toLocaleString('en')} nodes, ${model.edges.toLocaleString('en')} edges, predicts ${what}.`;
  $('examples').replaceChildren(...model.examples.map((id) => make('option', { value: id })));
  const tries = model.examples.slice(0, 4).map((id) => make('button', { class: 'link', type: 'button', onclick: () => find(id) }, id));
  $('tries').replaceChildren('Such as ', ...tries.flatMap((each, i) => (i ? [', ', each] : [each])));
  $('legend').replaceChildren(...colours(model.classes ?? []).map(([name, colour]) => make('li', {}, swatch(colour), name)));
  const names = model.names;
  $('file-columns').textContent = `nodes with ${names.id} and the features, edges with ${names.source}, ${names.target}${model.weighted ? ` and ${names.weight}` : ''}.`;
  $('new-weight-field').hidden = !model.weighted;
  $('new-fields').replaceChildren(...model.columns.map(({ name, kind }, i) => make('div', {},
    make('label', { for: `field-${i}` }, name),
    make('input', { id: `field-${i}`, 'data-column': i, autocomplete: 'off', placeholder: kind, inputmode: kind === 'number' ? 'decimal' : null }))));
  const whole = model.encoded || model.features === model.columns.length;
  $('new-grid').hidden = !whole;
  $('new-hint').textContent = !whole
    ? `The nodes have ${model.features.toLocaleString('en')} features, too many for a form: upload files instead.`
    : `What is left empty counts as ${model.encoded ? 'missing' : '0'}. Neighbours are ids of nodes in the graph.`;
  $('features-note').hidden = whole;
  const asked = decodeURIComponent(location.hash.slice(1));
  if (asked) await find(asked);
}

const swatch = (colour) => makeSvg('svg', { viewBox: '0 0 10 10', 'aria-hidden': 'true' }, makeSvg('circle', { cx: 5, cy: 5, r: 5, fill: colour }));

// A node.

async function find(id) {
  $('node-id').value = id;
  $('error').hidden = true;
  say(`Looking for ${id}…`);
  try {
    const path = `/nodes/${encodeURIComponent(id)}`;
    node = await get(`${path}?explain=false`);
    history.replaceState(null, '', `#${encodeURIComponent(node.id)}`);
    showNode();
    say(`Node ${node.id}: predicted ${answerOf(node.prediction)}.`);
    explain(path, node.id);
  } catch (error) {
    fail(error);
  }
}

function showNode() {
  $('node').hidden = false;
  $('prediction').textContent = answerOf(node.prediction);
  $('label').textContent = node.label === null ? '' : `in the graph: ${node.label}`;
  $('bars').replaceChildren(...bars(node.prediction));
  $('near').replaceChildren(...node.neighbors.map((each) => make('li', {},
    make('button', { class: 'link', type: 'button', onclick: () => find(each.id) }, each.id),
    each.prediction === null ? '' : ` (${each.prediction})`)));
  $('near-note').textContent = node.degree > node.neighbors.length
    ? `${node.neighbors.length} of ${node.degree.toLocaleString('en')} neighbours are shown.`
    : `${node.degree} neighbour${node.degree === 1 ? '' : 's'}. Choose one to go there.`;
  $('features').replaceChildren(...Object.entries(node.features).map(([name, value]) => make('tr', {}, make('td', {}, name), make('td', {}, shown(value)))));
  const names = new Set([...Object.keys(node.features), ...model.columns.map(({ name }) => name)]);
  $('if-column').replaceChildren(make('option', { value: '' }, 'none'), ...[...names].map((name) => make('option', { value: name }, name)));
  $('if-remove').replaceChildren(make('option', { value: '' }, 'none'), ...node.neighbors.map((each) => make('option', { value: each.id }, each.id)));
  $('what-if').reset();
  $('if-answer').replaceChildren();
  $('copy').hidden = false;
  redraw();
}

function redraw() {
  if (!node) return;
  $('picture').setAttribute('aria-label', `Picture of ${node.id} and ${node.neighbors.length} neighbours; the list below names them`);
  draw($('picture'), node, model.classes ?? [], (id) => { if (String(id) !== String(node.id)) find(id); });
}

async function explain(path, id) {
  $('why').replaceChildren(make('p', { class: 'hint' }, 'Computing…'));
  let parts;
  try {
    const { explanation: found, notes } = await get(`${path}?neighbors=0&top=8`);
    if (!found) throw new Error(notes.join(' '));
    const score = model.classes ? `log-odds of ${found.target}` : 'number';
    parts = [
      make('p', { class: 'hint' }, `What adds to (+) or takes from (−) the ${score}.`),
      make('div', { class: 'two' },
        make('div', {}, make('h3', {}, 'Features'),
          table(['feature', 'value', 'effect'], found.features.map((each) => [each.name, shown(each.value), effect(each.effect)]), 'Effects of features')),
        make('div', {}, make('h3', {}, 'Neighbours'), found.neighbors.length
          ? table(['node', 'hops', 'effect'], found.neighbors.map((each) => [String(each.id), String(each.hops), effect(each.effect)]), 'Effects of neighbours')
          : make('p', { class: 'hint' }, 'None.'))),
      ...notesOf(found.notes),
    ];
  } catch (error) {
    parts = [make('p', { class: 'hint' }, error.message)];
  }
  if (node && node.id === id) $('why').replaceChildren(...parts);
}

onSubmit('search', () => find($('node-id').value.trim()));

onSubmit('what-if', async () => {
  const column = $('if-column').value;
  const value = $('if-value').value.trim();
  const add = $('if-add').value.trim();
  const remove = $('if-remove').value;
  if (!column && !add && !remove) throw new Error('Choose a feature, or a neighbour to remove or to add.');
  const body = { id: node.id, add: add ? [add] : [], remove: remove ? [remove] : [] };
  if (column) body.features = { [column]: value === '' ? null : value };
  const found = await post('/what-if', body);
  $('if-answer').replaceChildren(...change(found.before, found.after), ...notesOf(found.notes));
});
$('what-if').addEventListener('reset', () => $('if-answer').replaceChildren());
$('if-column').addEventListener('change', () => {
  const value = node.features[$('if-column').value];
  $('if-value').value = value === undefined || value === null ? '' : value;
  $('if-value').select();
});

// New nodes.

$('copy').addEventListener('click', () => {
  for (const field of $('new-fields').querySelectorAll('input')) {
    const value = node.features[model.columns[field.dataset.column].name];
    const told = typeof value === 'number' || (typeof value === 'string' && !/^(missing|another value|constant|#\d+|\d+ of \d+ numbers.*)$/.test(value));
    field.value = told ? (typeof value === 'number' ? Number(value.toPrecision(6)) * (Math.abs(value) > 1e-6) : value) : '';
  }
  $('new-near').value = node.neighbors.slice(0, 20).map((each) => each.id).join(', ');
});

onSubmit('new-node', async () => {
  const names = model.names;
  const id = $('new-id').value.trim();
  const row = { [names.id]: id };
  for (const field of $('new-fields').querySelectorAll('input')) {
    const text = field.value.trim();
    const { name, kind } = model.columns[field.dataset.column];
    if (text === '') {
      if (!model.encoded) row[name] = 0;
      continue;
    }
    const number = Number(text);
    if (kind === 'number' && !Number.isFinite(number)) throw new Error(`${name} must be a number.`);
    row[name] = kind === 'number' ? number : text;
  }
  const near = $('new-near').value.split(',').map((each) => each.trim()).filter(Boolean);
  const weight = model.weighted ? { [names.weight]: Number($('new-weight').value) } : {};
  const edges = near.map((other) => ({ [names.source]: id, [names.target]: other, ...weight }));
  const found = await post('/predict-new', { nodes: [row], edges });
  $('new-answer').replaceChildren(make('p', { class: 'answer' }, make('strong', {}, answerOf(found.rows[0]))), ...bars(found.rows[0]), ...notesOf(found.notes));
});

onSubmit('files', async () => {
  const [nodes, edges] = await Promise.all(['nodes-file', 'edges-file'].map((id) => $(id).files[0].text()));
  say('Predicting…');
  const { text, notes } = await postForCsv('/predict-new', { nodes_csv: nodes, edges_csv: edges });
  const [head, ...rows] = csvRows(text, 50).map((row) => row.slice(0, 6));
  const count = text.trimEnd().split('\n').length - 1;
  $('files-answer').replaceChildren(
    make('h2', {}, `${count.toLocaleString('en')} predictions`), make('p', {}, download('predictions.csv', text)), ...notesOf(notes),
    table(head, rows, 'The first predictions'),
    count > 50 ? make('p', { class: 'hint' }, 'The first 50 are shown; the file has all.') : '');
  $('files-answer').hidden = false;
  say(`${count} predictions are ready.`);
});

// Tabs, as keyboards and screen readers expect them.

const tabs = [...document.querySelectorAll('[role=tab]')];
function choose(tab) {
  for (const each of tabs) {
    const on = each === tab;
    each.setAttribute('aria-selected', on);
    each.tabIndex = on ? 0 : -1;
    $(each.getAttribute('aria-controls')).hidden = !on;
  }
  tab.focus();
  if (tab.id === 'tab-node') redraw();
}
tabs.forEach((tab, i) => {
  tab.addEventListener('click', () => choose(tab));
  tab.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) choose(tabs[(i + step + tabs.length) % tabs.length]);
  });
});

$('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  keepToken($('token').value);
  $('token').value = '';
  start();
});
start();
