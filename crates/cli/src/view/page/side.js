// Words about allocations, the search, and the lists beside the charts.

const ROWS = 200; // So many rows a list shows.

const nameOf = (data, at) => data.meta.strings[data.name[at]] || `allocation ${at}`;
const streamText = (data, id) => data.meta.streams[id];
const stepsOf = (data, at) => Math.min(data.freed[at], data.steps) - data.born[at];

/** The address that a packed offset stands for. */
function addressOf(data, offset) {
  let seam = data.meta.seams[0] || [0, '0'];
  for (const next of data.meta.seams) if (next[0] <= offset) seam = next; else break;
  return BigInt(seam[1]) + BigInt(offset - seam[0]);
}

/** Facts of an allocation, as pairs. */
function factsOf(data, at) {
  const facts = [['size', `${bytesText(data.bytes[at])} (${countText(data.bytes[at])} B)`]];
  const born = data.meta.strings[data.site[at]], freed = data.meta.strings[data.freeSite[at]];
  const on = (id, place) => `${streamText(data, id)}${place ? `, ${place}` : ''}`;
  facts.push(['allocated', `${data.meta.unit} ${countText(data.born[at])}, ${on(data.stream[at], born)}`]);
  facts.push(['freed', data.freed[at] === Infinity ? 'never'
    : `${data.meta.unit} ${countText(data.freed[at])}, ${on(data.freeStream[at], freed)}`]);
  facts.push(['lifetime', `${countText(stepsOf(data, at))} ${data.meta.unit}s`]);
  const uses = data.useFirst[at + 1] - data.useFirst[at];
  if (uses) {
    let writes = 0;
    for (let use = data.useFirst[at]; use < data.useFirst[at + 1]; use++) writes += data.useWrites[use];
    facts.push(['uses', `${uses - writes} reads, ${writes} writes`]);
  }
  if (data.meta.placed) facts.push(['address', hexText(addressOf(data, data.start[at]))]);
  return facts;
}

function factsTable(pairs) {
  const table = make('table', 'facts');
  for (const [key, value] of pairs) table.append(make('tr', '', make('td', '', key), make('td', '', value)));
  return table;
}

/** A test for a query, or nothing where the query is empty. */
function testOf(data, query) {
  const tests = query.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const size = word.match(/^([<>=])=?(\d+(?:\.\d+)?)([kmgt])?(?:i?b)?$/);
    if (size) {
      const bytes = Number(size[2]) * 1024 ** ('kmgt'.indexOf(size[3]) + 1 || 0);
      if (size[1] === '>') return (at) => data.bytes[at] >= bytes;
      if (size[1] === '<') return (at) => data.bytes[at] <= bytes;
      return (at) => data.bytes[at] === bytes;
    }
    if (/^#\d+$/.test(word)) return (at) => at === Number(word.slice(1));
    if (word === 'kept') return (at) => data.freed[at] === Infinity;
    const [, key, value] = word.match(/^(stream|live):(.*)$/) || [];
    if (key === 'live') return (at) => data.born[at] <= Number(value) && Number(value) < data.freed[at];
    if (key === 'stream') {
      const named = data.meta.streams.map((name) => name === value || name === `stream ${value}`);
      return (at) => named[data.stream[at]];
    }
    const hits = data.meta.strings.map((text) => text.toLowerCase().includes(word));
    const plain = data.meta.strings.length < 2;
    return (at) => hits[data.name[at]] || hits[data.site[at]] || hits[data.freeSite[at]]
      || plain && `allocation ${at}`.includes(word);
  });
  return tests.length ? (at) => tests.every((test) => test(at)) : null;
}

/** The lists beside the charts. `page` says what is held, found and shown, and takes what is chosen. */
class Side {
  constructor(data, page) {
    this.data = data;
    this.page = page;
    this.tab = data.meta.marks.length ? 'violations' : data.count || !data.meta.graphs.length ? 'allocations' : 'graphs';
    this.draw();
  }
  show(tab) {
    this.tab = tab;
    this.draw();
  }
  draw() {
    const { meta } = this.data, tabs = [['allocations', this.page.found ? this.page.found.length : this.data.count]];
    if (meta.marks.length || meta.checked) tabs.push(['violations', meta.marks.length]);
    if (meta.graphs.length) tabs.push(['graphs', meta.graphs.length]);
    $('tabs').replaceChildren(...tabs.map(([tab, count]) => {
      const button = make('button', tab === this.tab ? 'on' : '', `${tab[0].toUpperCase()}${tab.slice(1)} `, make('b', '', countText(count)));
      if (tab === 'violations' && count) button.classList.add('bad');
      button.onclick = () => this.show(tab);
      return button;
    }));
    $('panel').replaceChildren(...this[this.tab]());
    $('panel').scrollTop = 0;
  }
  row(at) {
    const { data, page } = this, square = make('i');
    square.style.background = page.colourOf(at);
    const row = make('div', page.held === at ? 'row on' : 'row', square, make('span', 'what', nameOf(data, at)),
      make('span', 'size', bytesText(data.bytes[at])),
      make('small', '', `${streamText(data, data.stream[at])}, ${data.meta.unit} ${countText(data.born[at])} to `
        + (data.freed[at] === Infinity ? 'the end' : countText(data.freed[at]))));
    row.onclick = () => page.visit(at);
    return row;
  }
  allocations() {
    const { data, page } = this, parts = [];
    if (page.held >= 0) {
      parts.push(make('div', 'held', make('h2', '', nameOf(data, page.held)), factsTable(factsOf(data, page.held))));
    }
    if (!data.count) return [make('p', '', data.meta.graphs.length ? 'None outside of graphs: see Graphs.' : 'None.')];
    const found = page.found || this.largest();
    const total = page.found ? page.found.reduce((sum, at) => sum + data.bytes[at], 0) : 0;
    const most = found.length > ROWS ? `, the ${ROWS} largest below` : '';
    parts.push(make('p', '', page.found ? `${countText(found.length)} found, ${bytesText(total)} in all${most}`
      : 'The largest. Click one to see its whole life.'));
    for (const at of found.slice(0, ROWS)) parts.push(this.row(at));
    return parts;
  }
  largest() {
    if (!this.sorted) {
      const ids = [...Array(this.data.count).keys()];
      this.sorted = ids.sort((a, b) => this.data.bytes[b] - this.data.bytes[a] || a - b).slice(0, ROWS);
    }
    return this.sorted;
  }
  violations() {
    const { meta } = this.data;
    if (!meta.marks.length) return [make('p', '', 'None: every use is ordered.')];
    return meta.marks.flatMap((mark, index) => {
      const row = make('div', this.page.mark === index ? 'row mark on' : 'row mark', make('i'), make('span', 'what', mark.title),
        make('small', '', `${meta.unit} ${countText(mark.step)}`));
      row.onclick = () => this.page.jump(index);
      if (this.page.mark !== index) return [row];
      const parts = [row];
      if (mark.text) parts.push(make('pre', '', mark.text));
      if (mark.graph !== null) {
        const button = make('button', 'link', 'Show the nodes in the graph');
        button.onclick = () => this.page.openGraph(mark.graph);
        parts.push(button);
      }
      return parts;
    });
  }
  graphs() {
    return this.data.meta.graphs.map((graph, index) => {
      const row = make('div', 'row', make('i'), make('span', 'what', graph.name), make('span', 'size', `${graph.nodes.length} nodes`));
      row.firstChild.style.background = 'var(--accent)';
      row.onclick = () => this.page.openGraph(index);
      return row;
    });
  }
}
