// The page: its state, and the actions of the pointer and the keys.

class Page {
  constructor(data) {
    this.data = data;
    this.held = this.hover = this.mark = this.operation = this.over = -1;
    this.found = this.range = null;
    this.off = new Set();
    this.canvases = Object.fromEntries(['order', 'timeline', 'blocks', 'overview'].map((id) => [id, new Canvas($(id).firstElementChild)]));
    this.order = new Order(data);
    this.lanes = new Lanes(this.order, this.canvases.order);
    $('order').hidden = !this.order.count;
    // If only the order is known, it fills the page.
    const isBare = !data.count && this.order.count > 0;
    $('order').classList.toggle('all', isBare);
    $('timeline').hidden = $('blocks').hidden = isBare;
    this.overlay = $('overlay').getContext('2d');
    this.searching = new Search(data, (found) => this.take(found));
    if (data.meta.marks.length) this.mark = 0;
    this.mode = data.meta.streams.length > 1 ? 'stream' : 'size';
    if (data.meta.pools.length) $('colour').append(make('option', '', 'pool'));
    $('colour').value = this.mode;
    this.view = this.whole();
    this.readTheme();
    this.recolour();
    this.head();
    this.side = new Side(data, this);
    this.graphs = new GraphView(data);
    this.resize();
    this.input = new Input(this);
  }
  whole() {
    const room = Math.max(this.data.steps * .005, this.order && this.order.count ? .2 : 0);
    return { x0: -room, x1: this.data.steps + room, y0: 0, y1: Math.max(this.data.meta.height, 1) };
  }

  // Colours.

  readTheme() {
    const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
    const names = ['back', 'panel', 'line', 'text', 'dim', 'grid', 'accent', 'bad', 'idle', 'edge'];
    this.theme = Object.fromEntries(names.map((name) => [name, read(`--${name}`)]));
    const dark = parseInt(this.theme.back.slice(1, 3), 16) < 128;
    // Softened, because they fill large areas.
    this.theme.streams = dark ? STREAMS.dark : STREAMS.light.map((colour) => mixed(this.theme.back, colour, .8));
    this.theme.deeds = DEEDS[dark ? 'dark' : 'light'];
    this.theme.off = this.off;
  }
  /** The colour of each allocation, as an index into the list of colours. Those not found are faint. */
  recolour() {
    const { data, theme } = this, index = new Uint8Array(data.count), list = [];
    const ranks = { stream: (at) => data.fold[data.stream[at]], pool: (at) => (data.pool[at] ? Math.min(data.pool[at], FOLDED) : FOLDED) - 1 }[this.mode];
    if (ranks) list.push(...theme.streams);
    else for (let at = 0; at < RAMP_STEPS; at++) list.push(ramp(at / (RAMP_STEPS - 1)));
    const value = this.mode === 'size' ? (at) => data.bytes[at] : (at) => stepsOf(data, at);
    let low = Infinity, high = 0;
    if (!ranks) for (let at = 0; at < data.count; at++) { low = Math.min(low, value(at)); high = Math.max(high, value(at)); }
    low = Math.max(low, 1);
    const span = Math.log2(Math.max(high / low, 1)) || 1;
    for (let at = 0; at < data.count; at++) {
      index[at] = this.off.has(data.fold[data.stream[at]]) ? 255 : ranks ? ranks(at)
        : Math.round(Math.log2(Math.max(value(at), low) / low) / span * (RAMP_STEPS - 1));
    }
    const shades = list.length;
    if (this.found) {
      const { hit } = this.found;
      for (let at = 0; at < data.count; at++) if (!hit[at] && index[at] !== 255) index[at] += shades;
    }
    this.list = [...list, ...list.map((colour) => mixed(theme.back, colour, .16))];
    this.colours = { index, pixels: Uint32Array.from(this.list, pixel) };
    this.ends = [low, high];
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
      const name = folded ? plural(data.order.length - FOLDED + 1, 'other stream') : data.meta.streams[data.order[rank]];
      const part = make('button', this.off.has(rank) ? 'off' : '', square(theme.streams[rank]), name);
      part.title = 'Show or hide';
      part.setAttribute('aria-pressed', String(!this.off.has(rank)));
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
    if (data.ownStep.length) parts.push(make('span', '', square('', 'rule dashed'), 'reserved by the recorded run itself'));
    if (this.mode === 'pool') {
      const names = [...data.meta.pools.slice(0, FOLDED - 1), 'another pool, or not known'];
      parts.push(...names.map((name, at) => make('span', '', square(theme.streams[at < names.length - 1 ? at : FOLDED - 1]), `blocks: ${name}`)));
    } else if (this.mode !== 'stream' && data.count) {
      const bar = square(`linear-gradient(90deg, ${RAMP.join(',')})`, 'ramp');
      const text = this.mode === 'size' ? bytesText : (steps) => plural(Math.round(steps), data.meta.unit);
      parts.push(make('span', '', `blocks: ${text(this.ends[0])}`, bar, text(this.ends[1])));
    }
    parts.push(...this.lanes.legend(theme));
    if (data.meta.marks.length) parts.push(make('span', '', square(theme.bad), this.order.count ? 'violation; dashed: the missing edge' : 'violation'));
    $('legend').replaceChildren(...parts);
  }
  head() {
    const { meta } = this.data;
    $('name').textContent = meta.name;
    if (meta.placed) $('placed').textContent = 'Allocations, at their addresses';
    $('facts').replaceChildren(...meta.facts.map(([key, value]) => make('div', '', make('dt', '', key), make('dd', '', value))));
  }

  // Drawing.

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }
  /** The functions that draw each chart. */
  parts() {
    const { canvases, data, theme } = this, memory = this.memoryView();
    return {
      order: () => this.order.count && this.lanes.draw(this.view, theme, this),
      timeline: () => drawTimeline(canvases.timeline, data, memory, theme),
      blocks: () => drawBlocks(canvases.blocks, data, memory, theme, this.colours),
      overview: () => drawOverview(canvases.overview, data, this.view, theme),
    };
  }
  /** Draws the lanes alone: hovering changes nothing else. */
  drawLanes() {
    if (this.waiting) return;
    this.parts().order();
    this.paintOver();
  }
  paint() {
    const began = performance.now();
    for (const draw of Object.values(this.parts())) draw();
    const title = `Order of operations${this.lanes.every > 1 ? `; 1 of ${countText(this.lanes.every)} arrows is drawn` : ''}`;
    if (this.title !== title) $('order').querySelector('.title').textContent = this.title = title;
    this.paintOver();
    this.frame = performance.now() - began;
  }
  /** The view for memory, which changes in the middle of a step if operations are shown. */
  memoryView() {
    const { view, data: { shift } } = this;
    return { ...view, x0: view.x0 - shift, x1: view.x1 - shift };
  }
  resize() {
    const wished = this.order.rows.wished + LANE.help, room = $('charts').clientHeight * (this.data.count > 24 ? .46 : .6);
    $('order').style.height = $('order').classList.contains('all') ? '' : `${Math.min(wished, room)}px`;
    for (const canvas of Object.values(this.canvases)) canvas.resize();
    const charts = $('charts'), ratio = window.devicePixelRatio || 1, element = $('overlay');
    element.width = charts.clientWidth * ratio;
    element.height = charts.clientHeight * ratio;
    element.style.width = `${charts.clientWidth}px`;
    element.style.height = `${charts.clientHeight}px`;
    this.paint();
  }
  /** Draws the cross hairs, the item below the pointer, the selected item, and the range. */
  paintOver() {
    const pen = this.overlay, ratio = window.devicePixelRatio || 1, canvas = this.canvases.blocks, view = this.memoryView();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
    const left = $('overview').offsetLeft, top = $('blocks').offsetTop, foot = $('overview').offsetTop;
    const outline = (at, colour, thick) => {
      const box = boxOf(canvas, this.data, view, at);
      if (box.width < -1 || box.height < -1) return;
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.strokeRect(left + box.left - 1, top + box.top - 1, Math.max(box.width, 1) + 2, Math.max(box.height, 1) + 2);
    };
    this.paintRange(pen, left, foot);
    const marks = this.data.meta.marks.length < MARKED ? this.data.meta.marks : this.data.meta.marks.slice(this.mark, this.mark + 1);
    for (const mark of marks) for (const at of mark.allocations) outline(at, this.theme.bad, 2);
    for (const step of [this.operation, this.over]) {
      if (step >= 0) for (const [life] of this.order.memoryOf(step).slice(0, 50)) outline(life, this.theme.accent, 2);
    }
    for (const [at, colour] of [[this.held, this.theme.text], [this.hover, this.theme.accent]]) {
      if (at < 0) continue;
      this.paintLinks(pen, at, colour);
      outline(at, colour, 2.5);
    }
    if (!this.pointer || this.pointer.chart === 'overview') return;
    pen.strokeStyle = this.theme.edge;
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(left + this.pointer.x, $(this.order.count ? 'order' : 'timeline').offsetTop);
    pen.lineTo(left + this.pointer.x, foot);
    pen.stroke();
    pen.setLineDash([]);
  }
  paintRange(pen, left, foot) {
    if (!this.range) return;
    const at = (step) => left + stepToX(this.view, this.canvases.overview.width, step);
    const x0 = Math.max(at(this.range[0]), left + LEFT), x1 = Math.min(at(this.range[1]), left + this.canvases.overview.width);
    if (x1 < x0) return;
    pen.fillStyle = pen.strokeStyle = this.theme.accent;
    pen.globalAlpha = .12;
    pen.fillRect(x0, 0, x1 - x0, foot);
    pen.globalAlpha = 1;
    pen.strokeRect(x0 + .5, 0, Math.max(x1 - x0 - 1, 1), foot);
  }
  /** Draws links from a block to the operations that make, use and free it. */
  paintLinks(pen, life, colour) {
    if (!this.order.count) return;
    const left = $('overview').offsetLeft, top = $('blocks').offsetTop, from = $('order').offsetTop;
    const box = boxOf(this.canvases.blocks, this.data, this.memoryView(), life);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.2;
    for (const step of this.order.operationsOf(life)) {
      const x = left + this.lanes.x(this.view, step), y = this.lanes.y(this.data.lane[step]);
      if (x < left + LEFT || x > left + this.canvases.overview.width || y < 0 || y > this.canvases.order.height) continue;
      pen.globalAlpha = .6;
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(x, from + y + 15);
      pen.lineTo(x, top + Math.max(box.top, 0));
      pen.stroke();
      pen.setLineDash([]);
      pen.globalAlpha = 1;
      pen.beginPath();
      pen.arc(x, top + Math.max(box.top, 0), 3, 0, 7);
      pen.fill();
    }
  }
  /** The text beside the pointer. */
  tell() {
    const tip = $('tip'), { data, pointer } = this, chart = pointer && pointer.chart;
    tip.hidden = !pointer || chart === 'overview' || chart === 'blocks' && this.hover < 0 || chart === 'order' && this.over < 0;
    if (tip.hidden) return;
    if (chart === 'order') tip.replaceChildren(make('b', '', this.order.title(this.over)), factsTable(this.order.facts(this.over)), ...this.wrongAt(this.over));
    else tip.replaceChildren(...(chart === 'blocks' ? [make('b', '', nameOf(data, this.hover)), factsTable(factsOf(data, this.hover)), ...framesOf(data, this.hover, 6)] : this.moment()));
    const charts = $('charts'), element = $(chart);
    const x = element.offsetLeft + pointer.x, y = element.offsetTop + pointer.y;
    tip.style.left = `${x + 18 + tip.offsetWidth > charts.clientWidth ? Math.max(x - 14 - tip.offsetWidth, 0) : x + 18}px`;
    tip.style.top = `${Math.min(y + 16, charts.clientHeight - tip.offsetHeight - 4)}px`;
  }
  /** The violations of an operation, one line each. */
  wrongAt(step) {
    return (this.order.sides.get(step) || []).slice(0, 3).map((at) => make('p', 'wrong', this.data.meta.marks[at].title));
  }
  /** Memory at the pointer's step. */
  moment() {
    const { data } = this, step = Math.floor(this.stepAt(this.pointer.x) - data.shift);
    const event = eventsBefore(data, step + 1) - 1, held = heldAfter(data, event, new Float64Array(data.shown));
    const live = event < 0 ? 0 : data.total[event], index = reservedIndex(data.reservedStep, step), own = reservedIndex(data.ownStep, step);
    const pairs = [['live', bytesText(live)]];
    if (data.shown > 1) held.forEach((bytes, rank) => {
      const name = data.order.length > FOLDED && rank === FOLDED - 1 ? 'others' : data.meta.streams[data.order[rank]];
      if (bytes) pairs.push([`  ${name}`, bytesText(bytes)]);
    });
    if (index >= 0) {
      pairs.push(['reserved', bytesText(data.reservedBytes[index])], ['idle', bytesText(Math.max(data.reservedBytes[index] - live, 0))]);
    }
    if (own >= 0) pairs.push(['recorded run reserved', bytesText(data.ownBytes[own])]);
    const open = data.meta.spans.filter((span) => span.from <= step && step < span.to).map((span) => span.name);
    if (open.length) pairs.push(['in', open.slice(-4).join(', ')]);
    return [make('b', '', `after ${data.meta.unit} ${countText(Math.max(step, 0))}${whenText(data, Math.max(step, 0))}`), factsTable(pairs)];
  }

  // Navigation.

  stepAt(x) {
    return this.view.x0 + (x - LEFT) / (this.canvases.overview.width - LEFT) * (this.view.x1 - this.view.x0);
  }
  offsetAt(y) {
    return this.view.y0 + (1 - y / this.canvases.blocks.height) * (this.view.y1 - this.view.y0);
  }
  /** Sets the view, clamped to the content. */
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
  /** Selects an allocation and shows its whole life, with room around it. */
  visit(at) {
    const { data } = this, steps = Math.max(stepsOf(data, at), 24), bytes = Math.max(data.bytes[at], this.data.meta.height / 200);
    this.held = at;
    const x0 = data.born[at] - steps * .4, y0 = data.start[at] - bytes * 3;
    this.look({ x0, x1: x0 + steps * 1.8, y0, y1: y0 + bytes * 7 });
    this.side.draw();
  }
  /** Selects a violation and shows both of its sides. */
  jump(index) {
    const { marks } = this.data.meta;
    if (!marks.length) return;
    this.mark = (index + marks.length) % marks.length;
    const mark = marks[this.mark], at = mark.allocations[0], ends = mark.sides.length ? mark.sides : [mark.step];
    const from = Math.min(ends[0], mark.since ?? ends[0]), to = ends[ends.length - 1], all = this.whole();
    this.held = at ?? -1;
    if (all.x1 - all.x0 > 40) {
      const span = Math.max(to - from, 12);
      this.look({ x0: from - span * .3, x1: from + span * 1.4 });
    }
    if (at !== undefined && !this.order.count) {
      const bytes = Math.max(this.data.bytes[at], this.data.meta.height / 200);
      this.look({ y0: this.data.start[at] - bytes * 3, y1: this.data.start[at] + bytes * 4 });
    }
    this.reveal(ends[0]);
    this.side.show('violations');
    this.say(`${mark.title}. ${mark.help}`);
    this.draw();
  }
  /** Scrolls to the lane of an operation, and opens its group. */
  reveal(step) {
    if (!(step < this.order.count)) return;
    const { lanes, order: { rows }, canvases } = this, lane = this.data.lane[step];
    if (rows.isShut(lane)) this.turn(rows.of[lane]);
    const y = lanes.y(lane);
    if (y < 0 || y > canvases.order.height - 10) lanes.scroll(y - canvases.order.height / 2);
  }
  /** Opens or closes the lanes of a group. */
  turn(at) {
    const { rows } = this.order, group = rows.groups[at];
    if (!group) return;
    rows.turn(at);
    this.say(`${group.name} ${group.isShut ? 'closed' : 'opened'}`);
    this.resize();
  }
  /** Selects an operation. */
  pick(step) {
    if (!(step >= 0 && step < this.order.count)) return;
    this.operation = step;
    if (step < this.view.x0 || step + 1 > this.view.x1) {
      const half = (this.view.x1 - this.view.x0) / 2;
      this.look({ x0: step + .5 - half, x1: step + .5 + half });
    }
    this.reveal(step);
    const wrong = this.order.sides.get(step);
    if (wrong) this.mark = wrong.includes(this.mark) ? this.mark : wrong[0];
    this.side.show(wrong ? 'violations' : 'operations');
    this.say(`${this.order.title(step)}, ${this.order.where(step)}${wrong ? `. Wrong: ${this.data.meta.marks[wrong[0]].title}` : ''}`);
    this.draw();
  }
  /** Goes to another operation: in time, or on the lane above or below. */
  go(by, lanes) {
    const { order, data } = this, from = this.operation < 0 ? Math.max(Math.floor(this.view.x0), 0) : this.operation;
    if (!order.count) return;
    if (this.operation < 0) { this.pick(from); return; }
    const lane = data.lane[from];
    if (!lanes) {
      const place = order.firstOf(lane, from) + by;
      if (place >= order.byLane.first[lane] && place < order.byLane.first[lane + 1]) this.pick(order.byLane.members[place]);
      return;
    }
    const next = order.nearest([Math.min(Math.max(lane + lanes, 0), order.lanes.length - 1)], from + .5, Infinity);
    if (next >= 0) this.pick(next);
  }
  /** Closes the lanes of all groups, or opens them if none is open. */
  turnAll() {
    const { rows } = this.order, isShut = rows.groups.some((group) => !group.isShut);
    rows.groups.forEach((group, at) => rows.turn(at, isShut));
    if (rows.groups.length) this.say(`${plural(rows.groups.length, 'device')} ${isShut ? 'closed' : 'opened'}`);
    this.resize();
  }
  select(range) {
    this.range = range && range[1] > range[0] ? range : null;
    this.side.show(this.range ? 'range' : this.side.first());
    this.paintOver();
  }
  /** Announces a text to screen readers. */
  say(text) { $('live').textContent = text; }
  /** The shown order as an SVG picture. */
  picture() {
    const { width, height } = this.canvases.order, pen = new SvgPen(width, height, this.theme.back);
    this.lanes.draw(this.view, this.theme, this, pen);
    this.draw();
    return pen.text();
  }
  save() {
    if (!this.order.count) return;
    const link = make('a');
    link.href = URL.createObjectURL(new Blob([this.picture()], { type: 'image/svg+xml' }));
    link.download = `${this.data.meta.name}.svg`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  openGraph(index) {
    if (this.data.meta.graphs.length) this.graphs.open(index, this.theme);
  }
  /** Takes the result of a search. */
  take(found) {
    this.found = found;
    this.recolour();
    this.side.show(found && !found.count && found.operationCount ? 'operations' : 'allocations');
    if (found) this.say(`${plural(found.count, 'allocation')} and ${plural(found.operationCount, 'operation')} found`);
    this.draw();
  }
  /** Goes to the next or the previous allocation found, in time. */
  walk(by) {
    const { found, data } = this;
    if (!found || !found.count) return;
    let at = this.held < 0 ? (by > 0 ? -1 : data.count) : this.held;
    do at = (at + by + data.count) % data.count; while (!found.hit[at]);
    this.visit(at);
  }
  /** The allocation at a place of the charts. Small ones win, because they are drawn on top. */
  blockAt(x, y) {
    const step = this.stepAt(x) - this.data.shift, offset = this.offsetAt(y), { data } = this, { groups } = data;
    const slackX = 2 * (this.view.x1 - this.view.x0) / this.canvases.overview.width;
    const slackY = 2 * (this.view.y1 - this.view.y0) / this.canvases.blocks.height;
    let best = -1, nearest = Infinity;
    for (let at = 0; at < data.count && data.born[at] <= step + slackX; at++) {
      const group = at / LIVES;
      if (groups.end[group] < step - slackX || groups.low[group] > offset + slackY || groups.high[group] < offset - slackY) {
        at += LIVES - 1;
        continue;
      }
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
  letGo() {
    this.held = this.mark = this.operation = -1;
    this.range = null;
    $('query').value = '';
    this.searching.begin('');
  }
}

unpack().then((data) => {
  data.steps = Math.max(data.meta.steps, 1);
  let most = data.events ? data.total[data.peak] : 0;
  for (const bytes of [data.reservedBytes, data.ownBytes]) for (const reserved of bytes) most = Math.max(most, reserved);
  data.ceiling = Math.max(most, 1) * 1.04;
  data.shift = data.meta.operations ? .5 : 0;
  if (data.meta.operations) LEFT = 132;
  window.page = new Page(data);
}).catch((error) => {
  $('name').textContent = 'This page cannot be drawn';
  $('facts').textContent = typeof DecompressionStream === 'undefined'
    ? 'The browser is too old: it has no DecompressionStream (browsers since 2023 have).' : String(error);
});
