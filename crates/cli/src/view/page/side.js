// Texts about allocations, the search, and the lists beside the charts.

const ROWS = 200; // The number of rows of a list.

const nameOf = (data, at) => data.meta.strings[data.name[at]] || `allocation ${at}`;
/** The time of a step after a comma, if it is known. */
const whenText = (data, step) => (data.time.length ? `, ${timeText(data.time[Math.min(step, data.time.length - 1)])}` : '');
const streamText = (data, id) => data.meta.streams[id];
const stepsOf = (data, at) => Math.min(data.freed[at], data.steps) - data.born[at];

/** The address of a packed offset. */
function addressOf(data, offset) {
  let seam = data.meta.seams[0] || [0, '0'];
  for (const next of data.meta.seams) if (next[0] <= offset) seam = next; else break;
  return BigInt(seam[1]) + BigInt(offset - seam[0]);
}

/** Facts about an allocation, as pairs. */
function factsOf(data, at) {
  const facts = [['size', `${bytesText(data.bytes[at])} (${countText(data.bytes[at])} B)`]];
  const born = data.meta.strings[data.site[at]], freed = data.meta.strings[data.freeSite[at]];
  const on = (id, place) => `${streamText(data, id)}${place ? `, ${place}` : ''}`;
  facts.push(['allocated', `${data.meta.unit} ${countText(data.born[at])}${whenText(data, data.born[at])}, ${on(data.stream[at], born)}`]);
  facts.push(['freed', data.freed[at] === Infinity ? 'never'
    : `${data.meta.unit} ${countText(data.freed[at])}${whenText(data, data.freed[at])}, ${on(data.freeStream[at], freed)}`]);
  facts.push(['lifetime', plural(stepsOf(data, at), data.meta.unit)]);
  const uses = data.useFirst[at + 1] - data.useFirst[at];
  if (uses) {
    let writes = 0;
    for (let use = data.useFirst[at]; use < data.useFirst[at + 1]; use++) writes += data.useWrites[use];
    facts.push(['uses', `${plural(uses - writes, 'read')}, ${plural(writes, 'write')}`]);
  }
  if (data.pool.length) facts.push(['pool', data.pool[at] ? data.meta.pools[data.pool[at] - 1] : 'not known']);
  if (data.meta.placed) facts.push(['address', hexText(addressOf(data, data.start[at]))]);
  return facts;
}

function factsTable(pairs) {
  const table = make('table', 'facts');
  for (const [key, value] of pairs) table.append(make('tr', '', make('td', '', key), make('td', '', value)));
  return table;
}

/** The frames of an allocation, the innermost first. */
function framesOf(data, at, most) {
  const stack = data.meta.stacks[data.stack[at]] || [], list = make('ol', 'frames');
  for (const frame of stack.slice(0, most)) list.append(make('li', '', data.meta.strings[frame + 1]));
  if (stack.length > most) list.append(make('li', '', `and ${plural(stack.length - most, 'more', 'more')}`));
  return stack.length ? [list] : [];
}

/** For each frame, the sums over all allocations below it, and at the moment of the peak. */
function byFrame(data) {
  const of = (length) => ({ count: new Float64Array(length), bytes: new Float64Array(length), live: new Float64Array(length) });
  const stacks = of(data.meta.stacks.length), frames = of(data.meta.frames), peak = data.events ? data.step[data.peak] : 0;
  for (let at = 0; at < data.count; at++) {
    const stack = data.stack[at];
    stacks.count[stack]++;
    stacks.bytes[stack] += data.bytes[at];
    if (data.born[at] <= peak && peak < data.freed[at]) stacks.live[stack] += data.bytes[at];
  }
  data.meta.stacks.forEach((stack, number) => {
    for (const frame of new Set(stack)) for (const key of ['count', 'bytes', 'live']) frames[key][frame] += stacks[key][number];
  });
  const order = [...frames.count.keys()].filter((frame) => frames.count[frame]);
  return order.sort((a, b) => frames.live[b] - frames.live[a] || frames.bytes[b] - frames.bytes[a]).map((frame) => ({ text: data.meta.strings[frame + 1],
    count: frames.count[frame], bytes: frames.bytes[frame], live: frames.live[frame] }));
}

/** The lists beside the charts. `page` knows what is selected, found and shown, and receives what is chosen. */
class Side {
  constructor(data, page) {
    Object.assign(this, { data, page });
    this.tab = this.first();
    this.draw();
  }
  first() {
    const { meta, count } = this.data;
    return meta.marks.length ? 'violations' : count || !meta.graphs.length ? 'allocations' : 'graphs';
  }
  show(tab) {
    this.tab = tab;
    this.draw();
  }
  tabs() {
    const { meta, count } = this.data, { page } = this, tabs = [];
    if (meta.marks.length || meta.checked) tabs.push(['violations', meta.marks.length]);
    tabs.push(['allocations', page.found ? page.found.count : count]);
    if (meta.operations) tabs.push(['operations', page.found ? page.found.operationCount : meta.operations]);
    if (meta.frames) tabs.push(['frames', meta.frames]);
    if (meta.spans.length) tabs.push(['annotations', meta.spans.length]);
    if (meta.graphs.length) tabs.push(['graphs', meta.graphs.length]);
    if (page.range) tabs.push(['range', '']);
    return tabs;
  }
  draw() {
    const tabs = this.tabs(), had = document.activeElement && document.activeElement.id;
    if (!tabs.some(([tab]) => tab === this.tab)) this.tab = tabs[0][0];
    $('tabs').replaceChildren(...tabs.map(([tab, count], at) => {
      const button = make('button', tab === this.tab ? 'on' : '', `${tab[0].toUpperCase()}${tab.slice(1)} `, make('b', '', count === '' ? '' : countText(count)));
      if (tab === 'violations' && count) button.classList.add('bad');
      button.id = `tab-${tab}`;
      button.setAttribute('role', 'tab');
      button.setAttribute('aria-selected', String(tab === this.tab));
      button.setAttribute('aria-controls', 'panel');
      button.tabIndex = tab === this.tab ? 0 : -1;
      button.onclick = () => this.show(tab);
      button.onkeydown = (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        const [next] = tabs[(at + by + tabs.length) % tabs.length];
        this.show(next);
        $(`tab-${next}`).focus();
      };
      return button;
    }));
    if (had && had.startsWith('tab-') && $(had)) $(`tab-${this.tab}`).focus();
    $('panel').setAttribute('aria-labelledby', `tab-${this.tab}`);
    $('panel').replaceChildren(...this[this.tab]());
    $('panel').scrollTop = 0;
  }
  /** A row that can be chosen by a click or a key. */
  choice(classes, act, ...children) {
    const row = make('button', classes, ...children);
    row.onclick = act;
    return row;
  }
  row(at) {
    const { data, page } = this, square = make('i');
    square.style.background = page.colourOf(at);
    return this.choice(page.held === at ? 'row on' : 'row', () => page.visit(at), square, make('span', 'what', nameOf(data, at)),
      make('span', 'size', bytesText(data.bytes[at])),
      make('small', '', `${streamText(data, data.stream[at])}, ${data.meta.unit} ${countText(data.born[at])} to `
        + (data.freed[at] === Infinity ? 'the end' : countText(data.freed[at])) + (data.site[at] ? `, ${data.meta.strings[data.site[at]]}` : '')));
  }
  allocations() {
    const { data, page } = this, parts = [];
    if (page.held >= 0) {
      parts.push(make('div', 'held', make('h2', '', nameOf(data, page.held)), factsTable(factsOf(data, page.held)), ...framesOf(data, page.held, 64)));
    }
    if (!data.count) return [make('p', '', data.meta.graphs.length ? 'None outside of graphs: see Graphs.' : 'None.')];
    const { found } = page, top = found ? found.top : this.largest();
    parts.push(make('p', '', found ? `${countText(found.count)} found, ${bytesText(found.bytes)} in all${found.count > ROWS ? `, the ${ROWS} largest below` : ''}`
      : 'The largest. Choose one to see its whole life.'));
    for (const at of top) parts.push(this.row(at));
    return parts;
  }
  /** The largest allocations, without sorting all of them. */
  largest() {
    if (!this.sorted) {
      const { bytes, count } = this.data, found = { top: [], least: -1 };
      for (let at = 0; at < count; at++) if (bytes[at] > found.least) this.page.searching.keep(found, at);
      this.page.searching.keep(found, -1);
      this.sorted = found.top;
    }
    return this.sorted;
  }
  operations() {
    const { data, page } = this, { order, found } = page, parts = [];
    if (page.operation >= 0) {
      const graph = data.opGraph[page.operation], memory = order.memoryOf(page.operation).slice(0, 50);
      parts.push(make('div', 'held', make('h2', '', order.title(page.operation)), factsTable(order.facts(page.operation))));
      if (graph) parts.push(this.choice('link', () => page.openGraph(graph - 1), `Show ${data.meta.graphs[graph - 1].name}`));
      parts.push(...memory.map(([life]) => this.row(life)));
    }
    if (found) {
      parts.push(make('p', '', `${plural(found.operationCount, 'operation')} found${found.operationCount > FIRST ? `, the first ${FIRST} below` : ''}`));
      for (const step of found.operations) {
        parts.push(this.choice('row', () => page.pick(step), make('i'), make('span', 'what', order.title(step)), make('small', '', order.where(step))));
      }
    } else if (page.operation < 0) {
      parts.push(make('p', '', 'Choose an operation to see what it comes after. All of them:'), this.counts(order.sums(0, order.count)));
    }
    return parts;
  }
  /** The number of operations of each kind, and on each lane. */
  counts({ deeds, lanes }) {
    const rows = [...deeds].map((count, at) => [this.data.meta.deeds[at], countText(count), count]).filter((row) => row[2]);
    const on = [...lanes].map((count, at) => [this.page.order.rows.name(at), countText(count), count]).filter((row) => row[2]);
    const box = make('div', 'held', factsTable(rows));
    if (on.length > 1) box.append(make('h2', 'later', 'On'), factsTable(on.sort((a, b) => b[2] - a[2]).slice(0, 20)));
    return box;
  }
  range() {
    const { data, page } = this, [from, to] = page.range;
    const memory = memorySums(data, from + data.shift, to + data.shift);
    const first = Math.max(from, 0), last = Math.min(to, data.steps);
    const pairs = [['from', countText(first) + whenText(data, Math.floor(first))], ['to', countText(last) + whenText(data, Math.floor(last))],
      ['allocated', `${bytesText(memory.allocated)} by ${plural(memory.allocations, 'allocation')}`],
      ['freed', `${bytesText(memory.freed)} by ${plural(memory.frees, 'free')}`],
      ['live before', bytesText(memory.before)], ['live after', bytesText(memory.after)],
      ['most live', bytesText(memory.most)], ['least live', bytesText(memory.least)]];
    const parts = [make('div', 'held', make('h2', '', `The chosen ${data.meta.unit}s`), factsTable(pairs))];
    if (page.order.count) parts.push(this.counts(page.order.sums(from, to)));
    parts.push(this.choice('link', () => page.look({ x0: from, x1: to }), 'Show it whole'), this.choice('link', () => page.select(null), 'Let go'));
    return parts;
  }
  violations() {
    const { meta } = this.data, { page } = this;
    if (!meta.marks.length) return [make('p', 'good', 'None: every use is ordered.')];
    const parts = meta.marks.flatMap((mark, index) => {
      const held = page.mark === index;
      const row = this.choice(held ? 'row mark on' : 'row mark', () => page.jump(index), make('i'), make('span', 'what', mark.title),
        make('small', '', `${mark.kind}, ${meta.unit} ${countText(mark.step)}`));
      row.setAttribute('aria-expanded', String(held));
      return held ? [row, ...this.details(mark)] : [row];
    });
    return [...parts, ...this.fix()];
  }
  details(mark) {
    const { page } = this, parts = [];
    if (mark.text) parts.push(make('pre', '', mark.text));
    parts.push(make('div', 'help', make('b', '', 'help '), mark.help));
    if (mark.graph !== null) parts.push(this.choice('link', () => page.openGraph(mark.graph), 'Show the nodes in the graph'));
    return parts;
  }
  /** The changes of `check --fix`. */
  fix() {
    const { fix } = this.data.meta;
    if (!fix) return [];
    const title = fix.corrected ? `check --fix corrects ${plural(fix.corrected, 'violation')} by this` : 'check --fix corrects none of this';
    const parts = [make('h2', 'section', title)];
    if (fix.lines.length) {
      const text = make('pre', 'diff');
      for (const [sign, number, line] of fix.lines) {
        text.append(make('span', { '+': 'more', '-': 'less' }[sign] || '', `${String(number || '').padStart(4)} ${sign} ${line}\n`));
      }
      parts.push(text);
    }
    return [...parts, ...fix.left.map((why) => make('p', '', `left: ${why}`))];
  }
  frames() {
    this.table = this.table || byFrame(this.data);
    const rows = this.table.slice(0, ROWS).map((frame) => this.choice('row', () => {
      $('query').value = frame.text.toLowerCase().split(/\s+/).join(' ');
      this.page.searching.begin($('query').value);
    }, make('i'), make('span', 'what frame', frame.text), make('span', 'size', bytesText(frame.live)),
    make('small', '', `${plural(frame.count, 'allocation')}, ${bytesText(frame.bytes)} in all`)));
    return [make('p', '', 'Live when most was live, by frame, what it calls included. Choose one to find its allocations.'), ...rows];
  }
  annotations() {
    const { data, page } = this, { spans, unit } = data.meta;
    const rows = spans.slice(0, ROWS).map((span) => this.choice('row', () => {
      page.look({ x0: span.from - (span.to - span.from) * .05, x1: span.to + (span.to - span.from) * .05 });
      page.select([span.from, span.to]);
    }, make('i'), make('span', 'what', span.name), make('span', 'size', span.micros === null ? '' : timeText(span.micros)),
    make('small', '', `${unit} ${countText(span.from)} to ${countText(span.to - 1)}${whenText(data, span.from)}`)));
    const more = spans.length > ROWS ? ` The first ${ROWS} of ${countText(spans.length)}.` : '';
    return [make('p', '', `Parts of the program with names of their own. Choose one for its sums.${more}`), ...rows];
  }
  graphs() {
    return this.data.meta.graphs.map((graph, index) => {
      const row = this.choice('row', () => this.page.openGraph(index), make('i'), make('span', 'what', graph.name), make('span', 'size', plural(graph.nodes.length, 'node')));
      row.firstChild.style.background = 'var(--accent)';
      return row;
    });
  }
}
