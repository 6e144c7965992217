// Asking the service. The token is kept in this tab only.

const KEY = 'fastgcn-token';

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

async function ask(path, options, accept) {
  const headers = { Accept: accept, ...(options.body ? { 'Content-Type': 'application/json' } : {}) };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused(0, 'The service does not answer.');
  }
  if (answer.ok) return answer;
  let message = `The service answered with status ${answer.status}.`;
  try {
    message = (await answer.json()).error ?? message;
  } catch {
    // not of this service: the status says enough
  }
  throw new Refused(answer.status, message);
}

// Ids that JavaScript would round are kept as they are written.
async function read(answer) {
  return JSON.parse(await answer.text(), (_, value, context) =>
    (Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source) || value);
}

export async function get(path) {
  return read(await ask(path, {}, 'application/json'));
}

export async function post(path, body) {
  return read(await ask(path, { method: 'POST', body: JSON.stringify(body) }, 'application/json'));
}

export async function postForCsv(path, body) {
  const answer = await ask(path, { method: 'POST', body: JSON.stringify(body) }, 'text/csv');
  return { text: await answer.text(), notes: JSON.parse(answer.headers.get('x-fastgcn-notes') ?? '[]') };
}
