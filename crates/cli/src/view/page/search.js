// The search: interprets a query and searches in pieces, so that typing is never blocked.

const FIRST = 200; // The number of results kept as a list.
const PIECE = 1 << 16; // The number of allocations to test between two looks at the clock.
const PAUSE = 150; // Milliseconds without a key press before the search begins.

/** Tests of a query, for allocations and for operations; nothing if the query is empty. */
function testsOf(data, query) {
  const words = query.trim().toLowerCase().split(/\s+/).filter(Boolean), { strings, streams } = data.meta;
  const lower = words.length ? strings.map((text) => text.toLowerCase()) : [];
  const tests = words.map((word) => {
    const size = word.match(/^([<>=])=?(\d+(?:\.\d+)?)([kmgt])?(?:i?b)?$/);
    if (size) {
      const bytes = Number(size[2]) * 1024 ** ('kmgt'.indexOf(size[3]) + 1 || 0);
      if (size[1] === '>') return (at) => data.bytes[at] >= bytes;
      if (size[1] === '<') return (at) => data.bytes[at] <= bytes;
      return (at) => data.bytes[at] === bytes;
    }
    if (/^#\d+$/.test(word)) return (at) => at === Number(word.slice(1));
    if (word === 'kept') return (at) => data.freed[at] === Infinity;
    const [, key, value] = word.match(/^(stream|live|pool):(.*)$/) || [];
    if (key === 'live') return (at) => data.born[at] <= Number(value) && Number(value) < data.freed[at];
    if (key === 'pool') {
      const named = ['', ...data.meta.pools].map((name) => name.includes(value) && name !== '');
      return (at) => named[data.pool[at]];
    }
    if (key === 'stream') {
      const named = streams.map((name) => [value, `stream ${value}`, `stream \`${value}\``].includes(name.toLowerCase()));
      return (at) => named[data.stream[at]];
    }
    const hits = lower.map((text) => text.includes(word));
    // Frames are the texts after the first.
    const stacks = data.meta.stacks.map((stack) => stack.some((frame) => hits[frame + 1])), plain = strings.length < 2;
    const test = (at) => hits[data.name[at]] || hits[data.site[at]] || hits[data.freeSite[at]] || stacks[data.stack[at]]
      || plain && `allocation ${at}`.includes(word);
    test.operation = (step) => hits[data.label[step]] || hits[data.opSite[step]];
    return test;
  });
  if (!tests.length) return null;
  const isText = tests.every((test) => test.operation);
  return { allocation: (at) => tests.every((test) => test(at)), operation: (step) => isText && tests.every((test) => test.operation(step)) };
}

class Search {
  /** `done` receives the result, or null for an empty query. */
  constructor(data, done) {
    Object.assign(this, { data, done });
  }
  /** Starts again, once no key was pressed for a while. */
  ask(query, pause = PAUSE) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.begin(query), pause);
  }
  begin(query) {
    clearTimeout(this.timer);
    const tests = testsOf(this.data, query);
    if (!tests) { this.done(null); return; }
    const found = { hit: new Uint8Array(this.data.count), count: 0, bytes: 0, top: [], least: -1, operations: [], operationCount: 0 };
    this.look(tests, found, 0);
  }
  /** Continues the search from a place, for some milliseconds at a time. */
  look(tests, found, from) {
    const { data } = this, all = data.count + data.meta.operations, began = performance.now();
    let at = from;
    while (at < all && performance.now() - began < 8) {
      const end = Math.min(at + PIECE, all);
      for (; at < end; at++) {
        if (at >= data.count) {
          if (tests.operation(at - data.count) && ++found.operationCount <= FIRST) found.operations.push(at - data.count);
        } else if (tests.allocation(at)) {
          found.hit[at] = 1;
          found.count++;
          found.bytes += data.bytes[at];
          if (data.bytes[at] > found.least) this.keep(found, at);
        }
      }
    }
    if (at < all) { this.timer = setTimeout(() => this.look(tests, found, at), 0); return; }
    this.keep(found, -1);
    this.done(found);
  }
  /** Keeps the largest so far, sorted now and then. */
  keep(found, at) {
    if (at >= 0) found.top.push(at);
    if (at >= 0 && found.top.length < 2 * FIRST) return;
    found.top.sort((a, b) => this.data.bytes[b] - this.data.bytes[a] || a - b);
    found.top.length = Math.min(found.top.length, FIRST);
    if (found.top.length === FIRST) found.least = this.data.bytes[found.top[FIRST - 1]];
  }
}
