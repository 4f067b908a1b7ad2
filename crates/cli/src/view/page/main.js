// The page: what is shown, what the pointer and the keys do to it.

class Page {
  constructor(data) {
    this.data = data;
    this.held = this.hover = this.mark = -1;
    this.found = null;
    this.off = new Set();
    this.canvases = Object.fromEntries(['timeline', 'blocks', 'overview'].map((id) => [id, new Canvas($(id).firstElementChild)]));
    this.overlay = $('overlay').getContext('2d');
    this.mode = data.meta.streams.length > 1 ? 'stream' : 'size';
    $('colour').value = this.mode;
    this.view = this.whole();
    this.readTheme();
    this.recolour();
    this.head();
    this.side = new Side(data, this);
    this.graphs = new GraphView(data);
    this.listen();
    this.resize();
  }
  whole() {
    const room = this.data.steps * .005;
    return { x0: -room, x1: this.data.steps + room, y0: 0, y1: Math.max(this.data.meta.height, 512) };
  }

  // Colours.

  readTheme() {
    const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
    const names = ['back', 'panel', 'line', 'text', 'dim', 'grid', 'accent', 'bad', 'idle', 'edge'];
    this.theme = Object.fromEntries(names.map((name) => [name, read(`--${name}`)]));
    const dark = parseInt(this.theme.back.slice(1, 3), 16) < 128;
    this.theme.streams = STREAMS[dark ? 'dark' : 'light'];
    this.theme.off = this.off;
  }
  /** Which colour each allocation has: an index into the list of colours; those not found are faint. */
  recolour() {
    const { data, theme } = this, index = new Uint8Array(data.count), list = [];
    if (this.mode === 'stream') list.push(...theme.streams);
    else for (let at = 0; at < RAMP_STEPS; at++) list.push(ramp(at / (RAMP_STEPS - 1)));
    const value = this.mode === 'size' ? (at) => data.bytes[at] : (at) => stepsOf(data, at);
    let low = Infinity, high = 0;
    if (this.mode !== 'stream') for (let at = 0; at < data.count; at++) { low = Math.min(low, value(at)); high = Math.max(high, value(at)); }
    low = Math.max(low, this.mode === 'size' ? 512 : 1);
    const span = Math.log2(Math.max(high / low, 1)) || 1;
    for (let at = 0; at < data.count; at++) {
      const rank = data.fold[data.stream[at]];
      index[at] = this.off.has(rank) ? 255 : this.mode === 'stream' ? rank
        : Math.round(Math.log2(Math.max(value(at), low) / low) / span * (RAMP_STEPS - 1));
    }
    const shades = list.length;
    if (this.found) {
      const hit = new Uint8Array(data.count);
      for (const at of this.found) hit[at] = 1;
      for (let at = 0; at < data.count; at++) if (!hit[at] && index[at] !== 255) index[at] += shades;
    }
    this.list = [...list, ...list.map((colour) => mixed(theme.back, colour, .16))];
    this.colours = { index, pixels: Uint32Array.from(this.list, pixel) };
    this.range = [low, high];
    this.legend();
  }
  colourOf(at) {
    const index = this.colours.index[at];
    return index === 255 ? this.theme.idle : this.list[index % (this.list.length / 2)];
  }
  legend() {
    const { data, theme } = this, parts = [];
    const square = (colour, classes) => {
      const part = make('i', classes);
      if (colour) part.style.background = colour;
      return part;
    };
    for (let rank = 0; rank < data.shown; rank++) {
      const folded = data.order.length > FOLDED && rank === FOLDED - 1;
      const name = folded ? `${data.order.length - FOLDED + 1} other streams` : data.meta.streams[data.order[rank]];
      const part = make('button', this.off.has(rank) ? 'off' : '', square(theme.streams[rank]), name);
      part.title = 'Show or hide';
      part.onclick = () => {
        if (!this.off.delete(rank)) this.off.add(rank);
        this.recolour();
        this.side.draw();
        this.draw();
      };
      parts.push(part);
    }
    if (data.reservedStep.length) {
      parts.push(make('span', '', square(theme.idle), 'idle: reserved, not live'), make('span', '', square('', 'rule'), 'reserved'));
    }
    if (this.mode !== 'stream' && data.count) {
      const bar = square(`linear-gradient(90deg, ${RAMP.join(',')})`, 'ramp');
      const text = this.mode === 'size' ? bytesText : (steps) => `${countText(steps)} ${data.meta.unit}s`;
      parts.push(make('span', '', `blocks: ${text(this.range[0])}`, bar, text(this.range[1])));
    }
    if (data.meta.marks.length) parts.push(make('span', '', square(theme.bad), 'violation'));
    $('legend').replaceChildren(...parts);
  }
  head() {
    const { meta } = this.data;
    $('name').textContent = meta.name;
    if (meta.placed) $('placed').textContent = 'Allocations, at their addresses';
    $('facts').replaceChildren(...meta.facts.map(([key, value]) => make('div', '', make('dt', '', key), make('dd', '', value))));
  }

  // What is shown.

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }
  paint() {
    const began = performance.now();
    drawTimeline(this.canvases.timeline, this.data, this.view, this.theme);
    drawBlocks(this.canvases.blocks, this.data, this.view, this.theme, this.colours);
    drawOverview(this.canvases.overview, this.data, this.view, this.theme);
    this.paintOver();
    this.frame = performance.now() - began;
  }
  resize() {
    for (const canvas of Object.values(this.canvases)) canvas.resize();
    const charts = $('charts'), ratio = window.devicePixelRatio || 1, element = $('overlay');
    element.width = charts.clientWidth * ratio;
    element.height = charts.clientHeight * ratio;
    element.style.width = `${charts.clientWidth}px`;
    element.style.height = `${charts.clientHeight}px`;
    this.paint();
  }
  /** The cross hairs, what is below the pointer, what is held. */
  paintOver() {
    const pen = this.overlay, ratio = window.devicePixelRatio || 1, canvas = this.canvases.blocks;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
    const left = $('blocks').offsetLeft, top = $('blocks').offsetTop, foot = $('overview').offsetTop;
    const outline = (at, colour, thick) => {
      const box = boxOf(canvas, this.data, this.view, at);
      if (box.width < -1 || box.height < -1) return;
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.strokeRect(left + box.left - 1, top + box.top - 1, Math.max(box.width, 1) + 2, Math.max(box.height, 1) + 2);
    };
    for (const mark of this.data.meta.marks) for (const at of mark.allocations) outline(at, this.theme.bad, 2);
    if (this.held >= 0) outline(this.held, this.theme.text, 2.5);
    if (this.hover >= 0) outline(this.hover, this.theme.accent, 2);
    if (!this.pointer || this.pointer.chart === 'overview') return;
    pen.strokeStyle = this.theme.edge;
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(left + this.pointer.x, $('timeline').offsetTop);
    pen.lineTo(left + this.pointer.x, foot);
    pen.stroke();
    pen.setLineDash([]);
  }
  /** The text beside the pointer. */
  tell() {
    const tip = $('tip'), { data, pointer } = this;
    tip.hidden = !pointer || pointer.chart === 'overview' || pointer.chart === 'blocks' && this.hover < 0;
    if (tip.hidden) return;
    tip.replaceChildren(...(pointer.chart === 'blocks' ? [make('b', '', nameOf(data, this.hover)), factsTable(factsOf(data, this.hover))] : this.moment()));
    const charts = $('charts'), chart = $(pointer.chart);
    const x = chart.offsetLeft + pointer.x, y = chart.offsetTop + pointer.y;
    tip.style.left = `${x + 18 + tip.offsetWidth > charts.clientWidth ? Math.max(x - 14 - tip.offsetWidth, 0) : x + 18}px`;
    tip.style.top = `${Math.min(y + 16, charts.clientHeight - tip.offsetHeight - 4)}px`;
  }
  /** Memory at the pointer's step. */
  moment() {
    const { data } = this, step = Math.floor(this.stepAt(this.pointer.x));
    const event = eventsBefore(data, step + 1) - 1, held = heldAfter(data, event, new Float64Array(data.shown));
    const live = event < 0 ? 0 : data.total[event], index = reservedIndex(data, step);
    const pairs = [['live', bytesText(live)]];
    if (data.shown > 1) held.forEach((bytes, rank) => {
      const name = data.order.length > FOLDED && rank === FOLDED - 1 ? 'others' : data.meta.streams[data.order[rank]];
      if (bytes) pairs.push([`  ${name}`, bytesText(bytes)]);
    });
    if (index >= 0) {
      pairs.push(['reserved', bytesText(data.reservedBytes[index])], ['idle', bytesText(Math.max(data.reservedBytes[index] - live, 0))]);
    }
    return [make('b', '', `${data.meta.unit} ${countText(Math.max(step, 0))}`), factsTable(pairs)];
  }

  // Moving about.

  stepAt(x) {
    return this.view.x0 + (x - LEFT) / (this.canvases.blocks.width - LEFT) * (this.view.x1 - this.view.x0);
  }
  offsetAt(y) {
    return this.view.y0 + (1 - y / this.canvases.blocks.height) * (this.view.y1 - this.view.y0);
  }
  /** Takes a view, kept within what there is. */
  look(view) {
    const all = this.whole(), next = { ...this.view, ...view };
    for (const [low, high, least] of [['x0', 'x1', 8], ['y0', 'y1', 2048]]) {
      const span = Math.min(Math.max(next[high] - next[low], least), all[high] - all[low]);
      const middle = (next[low] + next[high]) / 2;
      next[low] = Math.min(Math.max(middle - span / 2, all[low]), all[high] - span);
      next[high] = next[low] + span;
    }
    this.view = next;
    this.draw();
  }
  zoomTime(factor, at) {
    const { x0, x1 } = this.view;
    const span = (x1 - x0) * factor;
    if (span < 8 && factor < 1) return;
    this.look({ x0: at - (at - x0) * factor, x1: at + (x1 - at) * factor });
  }
  zoomAddresses(factor, at) {
    const { y0, y1 } = this.view;
    if ((y1 - y0) * factor < 2048 && factor < 1) return;
    this.look({ y0: at - (at - y0) * factor, y1: at + (y1 - at) * factor });
  }
  pan(steps, offset) {
    const all = this.whole(), { x0, x1, y0, y1 } = this.view;
    const dx = Math.min(Math.max(steps, all.x0 - x0), all.x1 - x1), dy = Math.min(Math.max(offset, all.y0 - y0), all.y1 - y1);
    this.look({ x0: x0 + dx, x1: x1 + dx, y0: y0 + dy, y1: y1 + dy });
  }
  /** Holds an allocation and shows its whole life, with room around. */
  visit(at) {
    const { data } = this, steps = Math.max(stepsOf(data, at), 24), bytes = Math.max(data.bytes[at], this.data.meta.height / 200);
    this.held = at;
    const x0 = data.born[at] - steps * .4, y0 = data.start[at] - bytes * 3;
    this.look({ x0, x1: x0 + steps * 1.8, y0, y1: y0 + bytes * 7 });
    this.side.draw();
  }
  jump(index) {
    const { marks } = this.data.meta;
    if (!marks.length) return;
    this.mark = (index + marks.length) % marks.length;
    const mark = marks[this.mark], at = mark.allocations[0];
    const from = Math.min(mark.step, mark.since ?? mark.step), span = Math.max(mark.step - from, 20);
    this.held = at ?? -1;
    this.look({ x0: from - span * .4, x1: mark.step + span * .4 });
    if (at !== undefined) {
      const bytes = Math.max(this.data.bytes[at], this.data.meta.height / 200);
      this.look({ y0: this.data.start[at] - bytes * 3, y1: this.data.start[at] + bytes * 4 });
    }
    this.side.show('violations');
  }
  openGraph(index) {
    if (this.data.meta.graphs.length) this.graphs.open(index, this.theme);
  }
  search(query) {
    const test = testOf(this.data, query);
    this.found = null;
    if (test) {
      this.found = [];
      for (let at = 0; at < this.data.count; at++) if (test(at)) this.found.push(at);
      this.found.sort((a, b) => this.data.bytes[b] - this.data.bytes[a] || a - b);
    }
    this.recolour();
    this.side.show('allocations');
    this.draw();
  }
  /** Goes to the next thing found, or the one before. */
  walk(by) {
    if (!this.found || !this.found.length) return;
    const at = this.found.indexOf(this.held);
    this.visit(this.found[(at < 0 ? (by > 0 ? 0 : this.found.length - 1) : at + by + this.found.length) % this.found.length]);
  }
  /** The allocation at a place of the charts; small ones win, as they lie on top. */
  blockAt(x, y) {
    const step = this.stepAt(x), offset = this.offsetAt(y), { data } = this;
    const slackX = 2 * (this.view.x1 - this.view.x0) / this.canvases.blocks.width;
    const slackY = 2 * (this.view.y1 - this.view.y0) / this.canvases.blocks.height;
    let best = -1, nearest = Infinity;
    for (let at = 0; at < data.count && data.born[at] <= step + slackX; at++) {
      const early = step - Math.min(data.freed[at], data.steps), low = data.start[at] - offset, high = offset - data.start[at] - data.bytes[at];
      if (early > slackX || low > slackY || high > slackY || this.colours.index[at] === 255) continue;
      const far = Math.max(early, data.born[at] - step, 0) / slackX + Math.max(low, high, 0) / slackY;
      if (far <= nearest) { nearest = far; best = at; }
    }
    return best;
  }
  toggleTheme() {
    const dark = parseInt(this.theme.back.slice(1, 3), 16) < 128;
    document.documentElement.dataset.theme = dark ? 'light' : 'dark';
    this.newTheme();
  }
  newTheme() {
    this.readTheme();
    this.recolour();
    this.side.draw();
    this.draw();
  }

  listen() {
    for (const id of ['timeline', 'blocks']) this.listenChart(id);
    this.listenOverview();
    $('query').oninput = (event) => this.search(event.target.value);
    $('colour').onchange = (event) => {
      this.mode = event.target.value;
      event.target.blur();
      this.recolour();
      this.side.draw();
      this.draw();
    };
    $('fit').onclick = () => this.look(this.whole());
    $('theme').onclick = () => this.toggleTheme();
    $('keys').onclick = () => $('help').showModal();
    $('help').onclick = (event) => event.target === $('help') && $('help').close();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.newTheme());
    new ResizeObserver(() => this.resize()).observe($('charts'));
    addEventListener('keydown', (event) => this.key(event));
  }
  listenChart(id) {
    const element = $(id);
    let moved = 0;
    element.addEventListener('wheel', (event) => {
      event.preventDefault();
      const factor = Math.exp((event.deltaMode ? 30 : 1) * (event.deltaY || (event.shiftKey ? event.deltaX : 0)) * .0016);
      if (event.shiftKey && id === 'blocks') this.zoomAddresses(factor, this.offsetAt(event.offsetY));
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX * (this.view.x1 - this.view.x0) / element.clientWidth, 0);
      else this.zoomTime(factor, this.stepAt(event.offsetX));
    }, { passive: false });
    element.addEventListener('pointerdown', (event) => {
      moved = 0;
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener('pointermove', (event) => {
      this.pointer = { chart: id, x: event.offsetX, y: event.offsetY };
      if (event.buttons & 1) {
        moved += Math.abs(event.movementX) + Math.abs(event.movementY);
        const perStep = (this.view.x1 - this.view.x0) / (element.clientWidth - LEFT), perByte = (this.view.y1 - this.view.y0) / element.clientHeight;
        if (moved > 3) this.pan(-event.movementX * perStep, id === 'blocks' ? event.movementY * perByte : 0);
      }
      this.hover = id === 'blocks' && event.offsetX > LEFT ? this.blockAt(event.offsetX, event.offsetY) : -1;
      if (event.offsetX <= LEFT) this.pointer = null;
      this.tell();
      if (!this.waiting) this.paintOver();
    });
    element.addEventListener('pointerleave', () => {
      this.pointer = null;
      this.hover = -1;
      this.tell();
      this.paintOver();
    });
    element.addEventListener('click', () => {
      if (moved > 3 || id !== 'blocks') return;
      this.held = this.hover;
      this.side.show('allocations');
      this.paintOver();
    });
    element.addEventListener('dblclick', () => this.hover >= 0 && this.visit(this.hover));
  }
  listenOverview() {
    const element = $('overview');
    const go = (event) => {
      if (!(event.buttons & 1)) return;
      const middle = (event.offsetX - LEFT) / (element.clientWidth - LEFT) * this.data.steps, half = (this.view.x1 - this.view.x0) / 2;
      this.pan(middle - half - this.view.x0, 0);
    };
    element.addEventListener('pointerdown', (event) => {
      element.setPointerCapture(event.pointerId);
      go(event);
    });
    element.addEventListener('pointermove', go);
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const { view } = this, steps = (view.x1 - view.x0) * .12, offset = (view.y1 - view.y0) * .12, typing = event.target === $('query');
    const middle = this.pointer ? this.stepAt(this.pointer.x) : (view.x0 + view.x1) / 2;
    const keys = {
      ArrowLeft: () => this.pan(-steps, 0), ArrowRight: () => this.pan(steps, 0),
      ArrowUp: () => this.pan(0, offset), ArrowDown: () => this.pan(0, -offset),
      '+': () => this.zoomTime(.7, middle), '=': () => this.zoomTime(.7, middle), '-': () => this.zoomTime(1 / .7, middle),
      0: () => this.look(this.whole()), Home: () => this.look(this.whole()),
      '/': () => $('query').focus(), n: () => this.walk(1), p: () => this.walk(-1),
      v: () => this.jump(this.mark + 1), g: () => this.data.meta.graphs.length && this.side.show('graphs'),
      t: () => this.toggleTheme(), '?': () => $('help').showModal(),
      Enter: () => this.held >= 0 && this.visit(this.held),
      Escape: () => this.letGo(),
    };
    if (typing) {
      if (event.key === 'Escape') { this.letGo(); $('query').blur(); }
      if (event.key === 'Enter') { $('query').blur(); this.walk(1); }
      return;
    }
    const act = keys[event.key];
    if (!act || event.target.tagName === 'SELECT') return;
    event.preventDefault();
    act();
  }
  letGo() {
    this.held = this.mark = -1;
    $('query').value = '';
    this.search('');
  }
}

unpack().then((data) => {
  data.steps = Math.max(data.meta.steps, 1);
  let most = data.events ? data.total[data.peak] : 0;
  for (const bytes of data.reservedBytes) most = Math.max(most, bytes);
  data.ceiling = Math.max(most, 512) * 1.04;
  window.page = new Page(data);
}).catch((error) => {
  $('name').textContent = 'This page cannot be drawn';
  $('facts').textContent = typeof DecompressionStream === 'undefined'
    ? 'The browser is too old: it has no DecompressionStream (browsers since 2023 have).' : String(error);
});
