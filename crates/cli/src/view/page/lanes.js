// The order, drawn: a lane for each stream, host thread and device, operations as marks, arrows, and what is missing.
//
// What a mark looks like follows from the room that a step has: boxes with words, small shapes, ticks, or for each
// is wrong is drawn at any zoom.
// wrong is always drawn.

const ARROWS = 1500; // About this many arrows are drawn at once.
const MARKED = 300; // This many violations are drawn in full.
const BOXED = 44; // From this many pixels a step on, operations are boxes with words.
const WIDEST = 2.5; // The largest width of a box, in steps, where its lane has room.
const ICON = 14; // The size of a shape in the legend.
const FONT = '"Liberation Sans", "DejaVu Sans", system-ui, sans-serif';

class Lanes {
  constructor(order, canvas) {
    Object.assign(this, { order, canvas, data: order.data, rows: order.rows });
  }
  get high() { return this.rows.high; }
  /** Room below the lanes for the help. */
  get foot() { return this.data.meta.marks.some((mark) => mark.missing.length) && this.canvas.height > 220 ? LANE.help : 0; }
  get hidden() { return Math.max(this.rows.tall + this.foot - this.canvas.height, 0); }
  y(lane) { return this.rows.y(lane); }
  scroll(by) { this.rows.scroll = Math.min(Math.max(this.rows.scroll + by, 0), this.hidden); }
  x(view, step) { return stepToX(view, this.canvas.width, step + .5); }
  perStep(view) { return (this.canvas.width - LEFT) / (view.x1 - view.x0); }
  /** The operation at a place of the chart. */
  at(view, x, y) {
    const wide = this.perStep(view), place = view.x0 + (x - LEFT) / wide;
    if (x < LEFT) return -1;
    const areBoxes = wide >= BOXED && this.pen;
    const step = this.order.nearest(this.rows.lanesAt(y), place, Math.max(areBoxes ? WIDEST / 2 : .5, 7 / wide));
    const isOn = step < 0 || !areBoxes || Math.abs(this.x(view, step) - x) <= Math.max(wide, this.boxed(step).fits) / 2;
    return isOn ? step : -1;
  }
  colours(theme) {
    const deeds = new Array(this.data.meta.deeds.length).fill(theme.edge);
    Object.assign(deeds, { [DEED.alloc]: theme.deeds.alloc, [DEED.free]: theme.deeds.free, [DEED.kernel]: theme.deeds.kernel,
      [DEED.record]: theme.deeds.event, [DEED.wait]: theme.deeds.event, [DEED.sync]: theme.deeds.sync, [DEED.tell]: theme.deeds.sync,
      [DEED.launch]: theme.deeds.graph, [DEED.capture]: theme.deeds.graph, [DEED.captureEnd]: theme.deeds.graph,
      [DEED.build]: theme.deeds.graph, [DEED.instantiate]: theme.deeds.graph });
    return deeds;
  }

  /** For each drawn shape, the operations that have it. */
  legend(theme) {
    const { meta, deed } = this.data, colours = this.colours(theme), looks = new Map();
    for (const at of [...new Set(deed)].sort((a, b) => a - b)) {
      const look = `${SHAPES[at]} ${colours[at]}`;
      looks.set(look, [...looks.get(look) || [], at]);
    }
    return [...looks.values()].map((deeds) => {
      const icon = make('canvas'), ratio = window.devicePixelRatio || 1, pen = icon.getContext('2d');
      icon.width = icon.height = ICON * ratio;
      pen.scale(ratio, ratio);
      pen.fillStyle = pen.strokeStyle = colours[deeds[0]];
      shape(pen, deeds[0], ICON / 2, ICON / 2, ICON * .34, theme.back);
      return make('span', 'deed', icon, deeds.map((at) => meta.deeds[at]).join(', '));
    });
  }

  draw(view, theme, state, pen = this.canvas.begin()) {
    const { canvas } = this;
    Object.assign(this, { pen, view, theme, state, wide: this.perStep(view), deeds: this.colours(theme) });
    this.rows.room = canvas.height - this.foot;
    this.scroll(0);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, canvas.width - LEFT, canvas.height);
    pen.clip();
    this.rails();
    this.groups();
    this.bands();
    this.ties();
    this.operations();
    this.wrong();
    pen.restore();
    this.names();
  }
  isSeen(lane) {
    const y = this.y(lane);
    return y > -this.high && y < this.canvas.height + this.high;
  }
  /** Returns true if a lane is visible as a row of its own. */
  isRow(lane) { return !this.rows.isShut(lane) && this.isSeen(lane); }
  /** Draws the line of each lane, in the colour of its stream's memory. */
  rails() {
    const { pen, theme, canvas } = this;
    for (let lane = 0; lane < this.order.lanes.length; lane++) {
      if (!this.isRow(lane)) continue;
      const y = Math.round(this.y(lane)) + .5;
      pen.strokeStyle = this.railColour(lane);
      pen.globalAlpha = .5;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(canvas.width, y);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.fillStyle = theme.text;
  }
  railColour(lane) {
    const { stream } = this.order.lanes[lane];
    return stream === null ? this.theme.edge : this.theme.streams[this.data.fold[stream]];
  }
  /** Draws the rows of devices, with all operations of their streams. */
  groups() {
    const { pen, theme, canvas, view, order } = this, { first, members } = order.byLane;
    for (const group of this.rows.groups) {
      const y = this.rows.groupY(group), high = LANE.group - 6;
      if (y < -LANE.group || y > canvas.height + LANE.group) continue;
      pen.fillStyle = theme.panel;
      pen.fillRect(LEFT, y - LANE.group / 2 + 1, canvas.width - LEFT, LANE.group - 2);
      pen.fillStyle = theme.dim;
      if (this.wide < 1.5) {
        const sums = new Float64Array(Math.floor(canvas.width - LEFT));
        for (let lane = group.from; lane < group.to; lane++) this.columns(lane, (column, share) => { sums[column] += share; });
        this.bars(sums, y, high);
        continue;
      }
      const wide = Math.max(Math.min(this.wide * .8, 12), 1.4);
      for (let lane = group.from; lane < group.to; lane++) {
        for (let place = order.firstOf(lane, view.x0 - 1); place < first[lane + 1] && members[place] < view.x1; place++) {
          const step = members[place];
          pen.fillStyle = this.data.refused[step] ? theme.bad : this.deeds[this.data.deed[step]];
          pen.fillRect(this.x(view, step) - wide / 2, y - high / 2, wide, high);
        }
      }
    }
  }
  /** Draws the names of groups, with the symbols that open and close them. */
  groupNames() {
    const { pen, theme, state, data } = this, sides = state.mark >= 0 ? data.meta.marks[state.mark].sides : [];
    this.rows.groups.forEach((group, at) => {
      const y = this.rows.groupY(group), wrong = group.isShut && sides.some((step) => this.rows.of[data.lane[step]] === at);
      if (y < -LANE.group || y > this.canvas.height + LANE.group) return;
      pen.fillStyle = theme.panel;
      pen.fillRect(0, y - LANE.group / 2 + 1, LEFT - 4, LANE.group - 2);
      pen.fillStyle = wrong ? theme.bad : theme.text;
      pen.beginPath();
      if (group.isShut) { pen.moveTo(6, y - 4); pen.lineTo(6, y + 4); pen.lineTo(12, y); } else { pen.moveTo(5, y - 3); pen.lineTo(13, y - 3); pen.lineTo(9, y + 3); }
      pen.closePath();
      pen.fill();
      pen.textAlign = 'left';
      pen.textBaseline = 'middle';
      pen.font = `600 12px ${FONT}`;
      pen.fillText(cutText(pen, group.name, LEFT - 24), 17, y);
    });
  }
  names() {
    const { pen, theme, order } = this;
    pen.fillStyle = theme.back;
    pen.fillRect(0, 0, LEFT - 4, this.canvas.height);
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    order.lanes.forEach((_, at) => {
      if (!this.isRow(at)) return;
      const y = this.y(at), wrong = this.state.mark >= 0 && this.data.meta.marks[this.state.mark].sides.some((step) => this.data.lane[step] === at);
      pen.fillStyle = this.railColour(at);
      pen.fillRect(LEFT - 8, y - 8, 4, 16);
      pen.fillStyle = wrong ? theme.bad : theme.text;
      pen.font = `${wrong ? '600 ' : ''}13px ${FONT}`;
      pen.fillText(cutText(pen, this.rows.shortName(at), LEFT - 20), LEFT - 14, y);
    });
    this.groupNames();
  }
  /** Draws captures as bands around the captured operations, or folded where there is no room for each operation. */
  bands() {
    const { pen, theme, order } = this;
    for (const capture of order.captures) {
      const left = this.x(this.view, capture.from) - this.reach(capture.from), right = this.x(this.view, capture.to) + this.reach(capture.to);
      if (right < LEFT || left > this.canvas.width) continue;
      const top = this.y(capture.top) - Math.min(this.high * .42, 26), foot = this.y(capture.foot) + Math.min(this.high * .42, 26);
      const folded = this.isFolded(capture);
      pen.fillStyle = theme.deeds.graph;
      pen.globalAlpha = folded ? .3 : .09;
      roundBox(pen, left, top, Math.max(right - left, 3), foot - top, 8);
      pen.fill();
      pen.globalAlpha = .7;
      pen.strokeStyle = theme.deeds.graph;
      pen.lineWidth = 1;
      pen.stroke();
      pen.globalAlpha = 1;
      if (!folded || right - left < 60) continue;
      pen.fillStyle = theme.text;
      pen.font = `12px ${FONT}`;
      pen.textAlign = 'left';
      pen.textBaseline = 'middle';
      const name = `${this.data.meta.graphs[capture.graph].name}: ${plural(capture.to - capture.from - 1, 'operation')} captured`;
      pen.fillText(cutText(pen, name, right - left - 12), Math.max(left, LEFT) + 6, (top + foot) / 2);
    }
  }
  /** The distance that a band extends beyond its first or last operation. */
  reach(step) { return this.wide < BOXED ? this.wide * .46 : Math.max(this.wide * .46, this.boxed(step).fits / 2 + 6); }
  isFolded(capture) { return this.wide < 7 && capture.to > capture.from; }
  foldedAt(step) {
    return this.order.captures.find((capture) => step >= capture.from && step <= capture.to && this.isFolded(capture));
  }

  /** Draws arrows whose ends are in view; if there are too many, only every n-th. */
  ties() {
    const { data, view, order, pen, theme } = this, { arrowFrom, arrowTo } = data, most = this.wide < 3 ? ARROWS / 4 : ARROWS, shown = [];
    const first = lowerBound(arrowTo, 0, arrowTo.length, view.x0), last = lowerBound(arrowTo, 0, arrowTo.length, view.x1);
    // Not a power of two: programs often have such periods, and the same lanes would be left out each time.
    const stride = (count) => Math.max(1, 3 ** Math.ceil(Math.log(count / most) / Math.log(3)));
    this.every = stride(last - first);
    for (let at = Math.ceil(first / this.every) * this.every; at < last; at += this.every) shown.push(at);
    // Arrows that end after the view.
    const from = Math.max(0, Math.floor(view.x0)), to = Math.min(order.count, Math.ceil(view.x1));
    const low = order.byFrom.first[from] || 0, high = order.byFrom.first[Math.max(to, from)] || 0, every = stride(high - low);
    for (let place = Math.ceil(low / every) * every; place < high; place += every) {
      const at = order.byFrom.members[place];
      if (arrowTo[at] >= view.x1) shown.push(at);
    }
    const alpha = this.wide > 7 ? .85 : this.wide > .5 ? .5 : .28, isLight = (at) => [2, 3, 5].includes(data.arrowTie[at]);
    pen.lineWidth = this.wide > 20 ? 1.6 : 1;
    this.bundle(shown.filter((at) => !isLight(at)), theme.deeds.event, alpha, []);
    this.bundle(shown.filter(isLight), theme.dim, alpha * .55, [2, 3]);
    for (const step of [this.state.operation, this.state.over]) {
      if (!(step >= 0)) continue;
      pen.lineWidth = 2.4;
      this.bundle([...order.arrowsTo(step), ...order.arrowsFrom(step)], theme.accent, 1, []);
    }
    pen.globalAlpha = 1;
  }
  /** How far a drawn operation extends from the middle of its lane, up and down. */
  edge(lane) {
    if (this.rows.isShut(lane)) return LANE.group / 2 - 3;
    if (this.wide >= BOXED) return this.boxHigh / 2;
    if (this.wide >= 7) return this.size * 1.4;
    return this.wide < 1.5 ? 3 : this.tick / 2;
  }
  get boxHigh() { return Math.min(30, this.high - 8); }
  get size() { return Math.min(this.wide * .42, 7); }
  get tick() { return Math.min(this.high * .6, 30); }
  /** Returns true if a vertical line at a place meets no box on a lane. */
  isClear(lane, x) {
    const { order, view, pen } = this, { first, members } = order.byLane;
    if (this.wide < BOXED || !pen || this.rows.isShut(lane)) return true;
    const place = order.firstOf(lane, view.x0 + (x - LEFT) / this.wide - .5);
    return [place - 1, place].every((place) => place < first[lane] || place >= first[lane + 1]
      || Math.abs(this.x(view, members[place]) - x) > this.boxed(members[place]).fits / 2 + 4);
  }
  /**
   * Draws the path of an arrow. It begins and ends outside of the drawn operations, bends between lanes, and crosses
   * other lanes straight, at a place where they have no box. There is such a place at or near the operation where the
   * arrow ends.
   */
  route(from, to, room = 1) {
    const { data, view, rows } = this, own = data.lane[from], other = data.lane[to], down = other > own ? 1 : -1;
    const [y0, y1] = [this.y(own) + down * (this.edge(own) + room), this.y(other) - down * (this.edge(other) + room)];
    const [x0, x1] = [this.x(view, from), this.x(view, to)], crossed = [];
    for (let lane = own + down; lane !== other; lane += down) if (!rows.areOne(lane, own) && !rows.areOne(lane, other)) crossed.push(lane);
    if (!crossed.length || this.wide < 1.5) return { x0, y0, x1, y1, down };
    const between = Array.from({ length: 12 }, (_, at) => x1 + (x0 - x1) * (at + 1) / 13);
    const x = [x1, x0, ...between].find((x) => crossed.every((lane) => this.isClear(lane, x))) ?? x1;
    const [first, last] = [crossed[0], crossed[crossed.length - 1]];
    return { x0, y0, x1, y1, down, x, above: this.y(first) - down * this.edge(first), below: this.y(last) + down * this.edge(last) };
  }
  follow({ x0, y0, x1, y1, x, above, below }) {
    const { pen } = this;
    // Without room for a bend the arrow is straight.
    if (this.wide < 1.5) { pen.moveTo(x0, y0); pen.lineTo(x1, y1); return; }
    if (x === undefined) { bend(pen, x0, y0, x1, y1); return; }
    bend(pen, x0, y0, x, above);
    pen.lineTo(x, below);
    bend(pen, x, below, x1, y1);
  }
  /** Draws arrows of one style in one stroke. */
  bundle(arrows, colour, alpha, dash) {
    const { pen, data } = this, heads = [];
    pen.strokeStyle = pen.fillStyle = colour;
    pen.globalAlpha = alpha;
    pen.setLineDash(dash);
    pen.beginPath();
    for (const at of arrows) {
      const own = data.lane[data.arrowFrom[at]], other = data.lane[data.arrowTo[at]];
      if (!this.isSeen(own) && !this.isSeen(other) || this.rows.areOne(own, other)) continue;
      const route = this.route(data.arrowFrom[at], data.arrowTo[at]);
      this.follow(route);
      if (this.wide > 3) heads.push([route.x1, route.y1, route.down]);
    }
    pen.stroke();
    pen.setLineDash([]);
    for (const [x, y, down] of heads) arrowHead(pen, x, y, down, this.wide > 20 ? 5 : 3.5);
  }

  operations() {
    const { order, wide } = this;
    for (let lane = 0; lane < order.lanes.length; lane++) {
      if (!this.isRow(lane)) continue;
      if (wide < 1.5) this.density(lane);
      else this.marksOf(lane);
    }
  }
  marksOf(lane) {
    const { first, members } = this.order.byLane, { view, order } = this, end = first[lane + 1];
    for (let place = order.firstOf(lane, view.x0 - 1); place < end && members[place] < view.x1; place++) this.mark(members[place], lane);
  }
  mark(step, lane) {
    const { wide, pen, data, theme, view, state } = this, x = this.x(view, step), y = this.y(lane);
    if (wide < 7 && this.foldedAt(step)) return;
    const colour = data.refused[step] ? theme.bad : this.deeds[data.deed[step]], lit = step === state.operation || step === state.over;
    if (wide >= BOXED) return this.box(step, x, y, colour, lit);
    if (wide >= 7) {
      pen.fillStyle = pen.strokeStyle = colour;
      shape(pen, data.deed[step], x, y, this.size, theme.back);
    } else {
      pen.fillStyle = colour;
      pen.fillRect(x - Math.max(wide * .4, .7), y - this.tick / 2, Math.max(wide * .8, 1.4), this.tick);
    }
    if (lit) ring(pen, x, y, 11, theme.accent);
  }
  /** Draws a box with the operation's label. */
  box(step, x, y, colour, lit) {
    const { pen, theme, data } = this, { text, fits, high, isSmall } = this.boxed(step), left = x - fits / 2, top = y - high / 2;
    pen.fillStyle = theme.panel;
    roundBox(pen, left, top, fits, high, 6);
    pen.fill();
    pen.lineWidth = lit ? 2.6 : 1.4;
    pen.strokeStyle = lit ? theme.accent : colour;
    if (data.refused[step]) pen.setLineDash([4, 3]);
    pen.stroke();
    pen.setLineDash([]);
    if (!isSmall) {
      pen.fillStyle = colour;
      roundBox(pen, left + 4, top + 5, 4, high - 10, 2);
      pen.fill();
    }
    pen.fillStyle = theme.text;
    pen.textAlign = 'left';
    pen.textBaseline = 'middle';
    pen.fillText(text, left + (isSmall ? 5 : 13), y + .5);
  }
  /** The width for a box in pixels: on both sides, half of the distance to the next box on its lane. */
  room(step) {
    const { order, view, wide } = this, lane = this.data.lane[step], { first, members } = order.byLane, place = order.firstOf(lane, step);
    const before = place > first[lane] ? step - members[place - 1] : WIDEST;
    const after = place + 1 < first[lane + 1] ? members[place + 1] - step : WIDEST;
    const x = this.x(view, step), edge = 2 * Math.min(x - LEFT, this.canvas.width - x);
    return Math.max(Math.min(Math.min(before, after, WIDEST) * wide, edge), wide) - 8;
  }
  /** The words in a box, and its size: all words, or the first, or as many as fit. */
  boxed(step) {
    const { pen } = this, room = this.room(step), title = this.order.title(step);
    pen.font = `13px ${FONT}`;
    let text = title, width = pen.measureText(text).width, isSmall = false;
    if (width + 20 > room) {
      const [verb] = title.replace(/^\S+ = /, '').split(' ');
      isSmall = pen.measureText(verb).width + 20 > room;
      if (isSmall) pen.font = `11px ${FONT}`;
      text = room > 110 ? cutText(pen, title, room - (isSmall ? 10 : 20)) : cutText(pen, verb, room - (isSmall ? 8 : 18));
      width = pen.measureText(text).width;
    }
    return { text, fits: width + (isSmall ? 10 : 20), high: this.boxHigh, isSmall };
  }
  /** The number of operations in each column of pixels. */
  density(lane) {
    const shares = new Float64Array(Math.floor(this.canvas.width - LEFT));
    this.columns(lane, (column, share) => { shares[column] = share; });
    this.pen.fillStyle = this.railColour(lane);
    this.bars(shares, this.y(lane), Math.min(this.high * .8, 60));
  }
  /** The share of each column of pixels that a lane's operations take, for columns that have any. */
  columns(lane, take) {
    const { view, order, canvas } = this, { first, members } = order.byLane, end = first[lane + 1];
    const columns = Math.floor(canvas.width - LEFT), perColumn = 1 / this.wide;
    let place = order.firstOf(lane, view.x0);
    for (let column = 0; column < columns && place < end; column++) {
      const from = place, next = view.x0 + (column + 1) * perColumn;
      place = gallop(members, from, end, next);
      if (place > from) take(column, (place - from) / perColumn);
    }
  }
  bars(shares, y, tall) {
    const { pen } = this;
    pen.beginPath();
    shares.forEach((share, column) => {
      if (!share) return;
      const high = tall * (.18 + .82 * Math.sqrt(Math.min(share, 1)));
      pen.rect(LEFT + column, y - high / 2, 1, high);
    });
    pen.fill();
  }

  /** Draws violations: their sides highlighted, and the missing edges. */
  wrong() {
    const { marks } = this.data.meta, { state, view } = this, drawn = [];
    for (let at = 0; at < marks.length; at++) {
      const ends = marks[at].sides;
      if (ends.length && ends[ends.length - 1] >= view.x0 - 1 && ends[0] <= view.x1 && at !== state.mark) drawn.push(at);
    }
    const every = Math.max(1, Math.ceil(drawn.length / MARKED));
    for (let at = 0; at < drawn.length; at += every) this.violation(marks[drawn[at]], false);
    if (state.mark >= 0) this.violation(marks[state.mark], true);
  }
  violation(mark, held) {
    const { pen, theme, view, data } = this;
    for (const step of mark.sides) this.side(step, held);
    for (const [from, to] of mark.missing) {
      const own = data.lane[from], other = data.lane[to], x0 = this.x(view, from), x1 = this.x(view, to);
      pen.strokeStyle = pen.fillStyle = theme.bad;
      pen.lineWidth = held ? 3 : 1.8;
      pen.globalAlpha = held ? 1 : .75;
      pen.setLineDash(held ? [8, 5] : [5, 4]);
      if (this.rows.areOne(own, other)) {
        const y = this.y(own) - this.edge(own) - 3, lift = Math.min(this.high * .75, 46);
        pen.beginPath();
        pen.moveTo(x0, y);
        pen.bezierCurveTo(x0, y - lift, x1, y - lift, x1, y - 3);
        pen.stroke();
        pen.setLineDash([]);
        arrowHead(pen, x1, y, 1, 6);
      } else {
        const route = this.route(from, to, 3);
        pen.beginPath();
        this.follow({ ...route, y1: route.y1 - route.down * 4 });
        pen.stroke();
        pen.setLineDash([]);
        arrowHead(pen, x1, route.y1, route.down, 7);
      }
      pen.globalAlpha = 1;
    }
    if (held && mark.missing.length) this.help(mark);
  }
  side(step, held) {
    const { pen, theme } = this, x = this.x(this.view, step), y = this.y(this.data.lane[step]);
    if (x < LEFT - 40 || x > this.canvas.width + 40) return;
    if (this.wide < BOXED || this.rows.isShut(this.data.lane[step])) return ring(pen, x, y, held ? 10 : 7, theme.bad);
    const { fits, high } = this.boxed(step);
    pen.strokeStyle = pen.fillStyle = theme.bad;
    roundBox(pen, x - fits / 2 - 2, y - high / 2 - 2, fits + 4, high + 4, 8);
    pen.globalAlpha = .14;
    pen.fill();
    pen.globalAlpha = 1;
    pen.lineWidth = held ? 2.8 : 1.8;
    pen.stroke();
  }
  /** Draws the help, beside the middle of the missing edge. */
  help(mark) {
    const { pen, theme, view, data, canvas } = this, [from, to] = mark.missing[0];
    const y = (this.y(data.lane[from]) + this.y(data.lane[to])) / 2 - (this.rows.areOne(data.lane[from], data.lane[to]) ? this.high * .6 : 0);
    pen.font = `12px ${FONT}`;
    const lines = wrapped(pen, mark.help, 380).slice(0, 4), title = 'missing edge';
    const wide = Math.max(...lines.map((line) => pen.measureText(line).width), 80) + 18, high = 24 + lines.length * 16;
    // Below the lanes where there is room, else to the right of the edge, or to its left.
    const foot = this.rows.tall - this.rows.scroll, middle = (this.x(view, from) + this.x(view, to)) / 2 - wide / 2;
    const after = this.x(view, to) + 16, before = this.x(view, from) - wide - 16, isBelow = foot + high < canvas.height;
    const beside = isBelow ? middle : after + wide < canvas.width ? after : before;
    const left = Math.min(Math.max(beside, LEFT + 6), canvas.width - wide - 6);
    const top = isBelow ? foot + Math.min((canvas.height - foot - high) / 2, 12) : Math.min(Math.max(y - high / 2, 2), canvas.height - high - 2);
    pen.fillStyle = theme.panel;
    pen.globalAlpha = .95;
    roundBox(pen, left, top, wide, high, 7);
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = theme.bad;
    pen.lineWidth = 1;
    pen.stroke();
    pen.textAlign = 'left';
    pen.textBaseline = 'middle';
    pen.fillStyle = theme.bad;
    pen.font = `600 12px ${FONT}`;
    pen.fillText(title, left + 9, top + 13);
    pen.font = `12px ${FONT}`;
    pen.fillStyle = theme.text;
    lines.forEach((line, at) => pen.fillText(line, left + 9, top + 30 + at * 16));
  }
}

/** The first index from `low` on whose number is not less, by galloping search. */
function gallop(numbers, low, end, number) {
  let jump = 1, high = low;
  while (high < end && numbers[high] < number) { low = high + 1; high += jump; jump *= 2; }
  return lowerBound(numbers, low, Math.min(high, end), number);
}

/** A curve that leaves its lane and arrives at the other one at right angles. */
function bend(pen, x0, y0, x1, y1) {
  const half = (y1 - y0) * .5;
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0, y0 + half, x1, y1 - half, x1, y1);
}
function arrowHead(pen, x, y, down, size) {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x - size * .8, y - down * size * 1.5);
  pen.lineTo(x + size * .8, y - down * size * 1.5);
  pen.closePath();
  pen.fill();
}
function ring(pen, x, y, radius, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2.5;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.stroke();
}
function roundBox(pen, left, top, wide, high, corner) {
  const radius = Math.max(Math.min(corner, wide / 2, high / 2), 0), right = left + wide, foot = top + high;
  pen.beginPath();
  pen.moveTo(left + radius, top);
  pen.lineTo(right - radius, top);
  pen.quadraticCurveTo(right, top, right, top + radius);
  pen.lineTo(right, foot - radius);
  pen.quadraticCurveTo(right, foot, right - radius, foot);
  pen.lineTo(left + radius, foot);
  pen.quadraticCurveTo(left, foot, left, foot - radius);
  pen.lineTo(left, top + radius);
  pen.quadraticCurveTo(left, top, left + radius, top);
  pen.closePath();
}
/** A shape for each kind of operation, so that colour is not needed to distinguish them. Other kinds are squares. */
const SHAPES = { [DEED.free]: 'crossed', [DEED.kernel]: 'round', [DEED.record]: 'down', [DEED.wait]: 'up', [DEED.launch]: 'diamond',
  [DEED.capture]: 'diamond', [DEED.captureEnd]: 'diamond', [DEED.instantiate]: 'diamond', [DEED.sync]: 'bar', [DEED.tell]: 'bar' };
function shape(pen, deed, x, y, size, back) {
  const kind = SHAPES[deed];
  pen.lineWidth = 1.6;
  pen.beginPath();
  if (kind === 'round') pen.arc(x, y, size, 0, 7);
  else if (kind === 'down' || kind === 'up') {
    const down = kind === 'down' ? 1 : -1;
    pen.moveTo(x - size, y - down * size);
    pen.lineTo(x + size, y - down * size);
    pen.lineTo(x, y + down * size);
  } else if (kind === 'diamond') {
    pen.moveTo(x, y - size * 1.2);
    pen.lineTo(x + size, y);
    pen.lineTo(x, y + size * 1.2);
    pen.lineTo(x - size, y);
  } else if (kind === 'bar') pen.rect(x - size * .35, y - size * 1.4, size * .7, size * 2.8);
  else pen.rect(x - size, y - size, 2 * size, 2 * size);
  pen.closePath();
  if (kind === 'crossed') {
    pen.fillStyle = back;
    pen.fill();
    pen.moveTo(x - size, y - size);
    pen.lineTo(x + size, y + size);
    pen.stroke();
  } else pen.fill();
}
function cutText(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}\u2026`).width <= room) low = middle; else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}\u2026` : '';
}
function wrapped(pen, text, room) {
  const lines = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line && pen.measureText(`${line} ${word}`).width > room) { lines.push(line); line = word; } else line = line ? `${line} ${word}` : word;
  }
  return line ? [...lines, line] : lines;
}
