// The two charts and the overview: draws a view, which is a range of steps and addresses.
//
// Allocations are painted into an image row by row. No two share a byte at the same time, so the work is bounded by the
// pixels and the number of allocations at any zoom. Everything else is paths on a canvas.

let LEFT = 72; // Room for the scale and for the names of lanes, in CSS pixels.
const SPAN_HIGH = 17; // The height of a row of annotations.
const BREAK = 2; // Blocks that are this many pixels larger are separated by a pixel.

class Canvas {
  constructor(element) {
    this.element = element;
    this.pen = element.getContext('2d');
    this.resize();
  }
  resize() {
    const { width, height } = this.element.parentElement.getBoundingClientRect();
    this.ratio = window.devicePixelRatio || 1;
    this.width = Math.max(width, LEFT + 40);
    this.height = Math.max(height, 20);
    this.element.width = Math.round(this.width * this.ratio);
    this.element.height = Math.round(this.height * this.ratio);
  }
  begin() {
    this.pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.pen.clearRect(0, 0, this.width, this.height);
    this.pen.font = '12px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif';
    return this.pen;
  }
}

const stepToX = (view, width, step) => LEFT + (step - view.x0) / (view.x1 - view.x0) * (width - LEFT);

/** Horizontal lines with their values. */
function drawBytesScale(canvas, theme, from, to, top, text) {
  const pen = canvas.pen, span = to - from, plot = canvas.height - top;
  const distance = binaryDistance(span / Math.max(2, plot / 46));
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  pen.lineWidth = 1;
  for (let bytes = Math.ceil(from / distance) * distance; bytes <= to; bytes += distance) {
    const y = Math.round(canvas.height - (bytes - from) / span * plot) + .5;
    if (y < 14 || y > canvas.height - 5 && bytes > 0) continue;
    pen.strokeStyle = theme.grid;
    pen.beginPath();
    pen.moveTo(LEFT, y);
    pen.lineTo(canvas.width, y);
    pen.stroke();
    pen.fillStyle = theme.dim;
    pen.fillText(text(bytes), LEFT - 8, Math.min(y, canvas.height - 7));
  }
}

/** The peak of the reserved bytes in each column, given the steps at which they change. */
function mostReserved(steps, bytes, view, count) {
  const most = new Float64Array(count), perColumn = (view.x1 - view.x0) / count;
  let at = reservedIndex(steps, view.x0);
  for (let column = 0; column < count; column++) {
    const end = view.x0 + (column + 1) * perColumn;
    let here = at >= 0 ? bytes[at] : 0;
    while (at + 1 < steps.length && steps[at + 1] < end) here = Math.max(here, bytes[++at]);
    most[column] = here;
  }
  return most;
}

/** For each column, the event after which most bytes were live. */
function columnsOf(data, view, count) {
  const events = new Int32Array(count), perColumn = (view.x1 - view.x0) / count;
  let from = eventsBefore(data, view.x0);
  for (let column = 0; column < count; column++) {
    const end = view.x0 + (column + 1) * perColumn;
    let to = from;
    if (perColumn < 4) while (to < data.events && data.step[to] < end) to++;
    else to = eventsBefore(data, end);
    events[column] = to > from ? topEvent(data, Math.max(from - 1, 0), to) : from - 1;
    from = to;
  }
  return events;
}

function drawTimeline(canvas, data, view, theme) {
  const pen = canvas.begin(), count = Math.floor(canvas.width - LEFT), top = 16 + (data.spanRows ? data.spanRows * SPAN_HIGH + 10 : 0);
  const y = (bytes) => canvas.height - bytes / data.ceiling * (canvas.height - top);
  drawBytesScale(canvas, theme, 0, data.ceiling, top, scaleText);
  const events = columnsOf(data, view, count), reserved = mostReserved(data.reservedStep, data.reservedBytes, view, count);
  const stacks = new Float64Array(count * (data.shown + 1)), held = new Float64Array(data.shown);
  for (let column = 0; column < count; column++) {
    heldAfter(data, events[column], held);
    let sum = 0;
    for (let rank = 0; rank < data.shown; rank++) {
      if (!theme.off.has(rank)) sum += held[rank];
      stacks[(rank + 1) * count + column] = sum;
    }
  }
  const last = view.x1 > data.steps ? Math.floor((data.steps - view.x0) / (view.x1 - view.x0) * count) : count;
  // From the outermost to the innermost, each down to the foot: later areas cover earlier ones. A column is one pixel
  // wide, so one point for each is enough.
  const area = (high, colour) => {
    pen.beginPath();
    pen.moveTo(LEFT, canvas.height);
    for (let column = 0; column < last; column++) pen.lineTo(LEFT + column + .5, y(high(column)));
    pen.lineTo(LEFT + last, canvas.height);
    pen.fillStyle = colour;
    pen.fill();
  };
  const live = (column) => stacks[data.shown * count + column];
  if (data.reservedStep.length) area((column) => Math.max(reserved[column], live(column)), theme.idle);
  for (let rank = data.shown; rank-- > 0;) {
    if (!theme.off.has(rank)) area((column) => stacks[(rank + 1) * count + column], theme.streams[rank]);
  }
  const line = (bytes, colour, dash) => {
    pen.beginPath();
    for (let column = 0; column < last; column++) {
      pen.lineTo(LEFT + column, y(bytes[column]));
      pen.lineTo(LEFT + column + 1, y(bytes[column]));
    }
    pen.strokeStyle = colour;
    pen.lineWidth = 1.25;
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
  };
  if (data.reservedStep.length) line(reserved, theme.edge, []);
  if (data.ownStep.length) line(mostReserved(data.ownStep, data.ownBytes, view, count), theme.text, [6, 3]);
  drawSpans(canvas, data, view, theme);
  drawMarks(canvas, data, view, theme, true);
  drawPeak(canvas, data, view, theme, y(data.total[data.peak]));
}

/** Draws annotations above the memory; nested ones are below their parents. */
function drawSpans(canvas, data, view, theme) {
  const { pen } = canvas, ends = new Float64Array(data.spanRows);
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  data.meta.spans.forEach(({ name, from, to }, at) => {
    const row = data.spanRow[at];
    if (row < 0 || to <= view.x0 || from >= view.x1) return;
    const left = Math.max(stepToX(view, canvas.width, from), LEFT), right = Math.min(stepToX(view, canvas.width, to), canvas.width);
    // Of several annotations in one pixel only one is drawn.
    if (right < ends[row]) return;
    ends[row] = Math.max(right, left + 1);
    const top = 22 + row * SPAN_HIGH, wide = Math.max(right - left - 1, 1);
    pen.fillStyle = theme.accent;
    pen.globalAlpha = .16;
    pen.fillRect(left, top, wide, SPAN_HIGH - 2);
    pen.globalAlpha = .7;
    pen.fillRect(left, top, 1, SPAN_HIGH - 2);
    pen.globalAlpha = 1;
    if (wide < 24) return;
    pen.fillStyle = theme.text;
    pen.fillText(cutText(pen, name, wide - 8), left + 5, top + SPAN_HIGH / 2 - .5);
  });
}

/** Draws the peak of the live bytes. */
function drawPeak(canvas, data, view, theme, y) {
  const x = stepToX(view, canvas.width, data.step[data.peak]), pen = canvas.pen;
  if (!(x >= LEFT && x <= canvas.width)) return;
  const text = `most live: ${bytesText(data.total[data.peak])}`, wide = pen.measureText(text).width;
  const left = x + 8 + wide > canvas.width;
  pen.textBaseline = 'middle';
  pen.textAlign = left ? 'right' : 'left';
  pen.fillStyle = theme.panel;
  pen.globalAlpha = .85;
  pen.fillRect(left ? x - 12 - wide : x + 5, y - 9, wide + 7, 17);
  pen.globalAlpha = 1;
  pen.fillStyle = theme.text;
  pen.beginPath();
  pen.arc(x, y, 3, 0, 7);
  pen.fill();
  pen.fillText(text, left ? x - 8 : x + 8, y);
}

/** Draws violations as vertical lines. */
function drawMarks(canvas, data, view, theme, flags) {
  const pen = canvas.pen;
  pen.strokeStyle = pen.fillStyle = theme.bad;
  pen.lineWidth = 1;
  for (const mark of data.meta.marks) {
    const x = Math.round(stepToX(view, canvas.width, mark.step + .5 - data.shift)) + .5;
    if (x < LEFT || x > canvas.width) continue;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, canvas.height);
    pen.stroke();
    if (!flags) continue;
    pen.beginPath();
    pen.moveTo(x - 5, 0);
    pen.lineTo(x + 5, 0);
    pen.lineTo(x, 8);
    pen.fill();
  }
}

/** Draws all allocations in view, each as a block from its birth to its free, at its address. */
function drawBlocks(canvas, data, view, theme, colours) {
  const pen = canvas.begin();
  const ratio = canvas.ratio, left = Math.round(LEFT * ratio);
  const width = canvas.element.width - left, height = canvas.element.height;
  if (!canvas.image || canvas.image.width !== width || canvas.image.height !== height) {
    canvas.image = pen.createImageData(width, height);
    canvas.words = new Uint32Array(canvas.image.data.buffer);
  }
  const words = canvas.words.fill(0);
  paintBlocks(words, width, height, data, view, colours);
  pen.putImageData(canvas.image, left, 0);
  // The image is transparent where no allocation is, so the lines are drawn below it.
  pen.globalCompositeOperation = 'destination-over';
  drawBytesScale(canvas, theme, view.y0, view.y1, 0, scaleText);
  pen.globalCompositeOperation = 'source-over';
  drawSeams(canvas, data, view, theme);
  drawBlockLabels(canvas, data, view, theme);
  drawMarks(canvas, data, view, theme, false);
}

/**
 * Paints from the latest to the earliest, so that painted pixels stay. Of many allocations in one column of pixels few
 * are painted, and groups that lie in a column that is full there are skipped.
 */
function paintBlocks(words, width, height, data, view, colours) {
  const { born, freed, start, bytes, count, groups } = data, { x0, x1, y0, y1 } = view, { index, pixels } = colours;
  const perStep = width / (x1 - x0), perByte = height / (y1 - y0), end = data.steps;
  // The painted rows of the current column, one bit each. Columns are painted from the right.
  const rows = new Int32Array((height >> 5) + 1);
  let present = width;
  for (let at = lowerBound(born, 0, count, x1) - 1; at >= 0; at--) {
    if (at % LIVES === LIVES - 1) {
      const group = (at - LIVES + 1) / LIVES, low = groups.low[group], high = groups.high[group], last = groups.end[group];
      const isHidden = Math.floor((born[at - LIVES + 1] - x0) * perStep) === present
        && Math.floor((Math.min(last, end) - x0) * perStep) === present
        && isFull(rows, Math.max(height - (high - y0) * perByte, 0) | 0, Math.min(height - (low - y0) * perByte + 1, height) | 0);
      if (isHidden || last <= x0 || low >= y1 || high <= y0) { at -= LIVES - 1; continue; }
    }
    const low = start[at], high = low + bytes[at], last = freed[at];
    if (last <= x0 || low >= y1 || high <= y0 || index[at] === 255) continue;
    // Clip to the image first: integers are fast.
    const left = Math.max((born[at] - x0) * perStep, 0) | 0, right = Math.min((Math.min(last, end) - x0) * perStep, width) | 0;
    let top = Math.max(height - (high - y0) * perByte, 0) | 0, bottom = Math.min(Math.max(height - (low - y0) * perByte, top + 1), height) | 0;
    if (right - left < 2) {
      if (left !== present) { rows.fill(0); present = left; }
      if (isFull(rows, top, bottom)) continue;
      const word = pixels[index[at]];
      for (let row = top; row < bottom; row++) {
        if (rows[row >> 5] >>> (row & 31) & 1) continue;
        rows[row >> 5] |= 1 << (row & 31);
        if (!words[row * width + left]) words[row * width + left] = word;
      }
      continue;
    }
    const word = pixels[index[at]], until = right - left > BREAK ? right - 1 : right;
    if (bottom - top > BREAK) top++;
    for (let row = top * width; row < bottom * width; row += width) {
      for (let x = row + left; x < row + until; x++) if (!words[x]) words[x] = word;
    }
  }
}
/** Returns true if all bits from `low` to below `high` are set. */
function isFull(bits, low, high) {
  if (high <= low) return true;
  const first = low >> 5, last = (high - 1) >> 5, begin = -1 << (low & 31), end = -1 >>> (31 - ((high - 1) & 31));
  if (first === last) return (~bits[first] & begin & end) === 0;
  for (let at = first + 1; at < last; at++) if (~bits[at]) return false;
  return (~bits[first] & begin) === 0 && (~bits[last] & end) === 0;
}

/** Draws the seams, where unused addresses are left out. */
function drawSeams(canvas, data, view, theme) {
  const pen = canvas.pen;
  pen.strokeStyle = theme.edge;
  pen.setLineDash([2, 4]);
  let last = -9;
  for (const [offset] of data.meta.seams) {
    const y = Math.round(canvas.height - (offset - view.y0) / (view.y1 - view.y0) * canvas.height) + .5;
    if (offset === 0 || y < 0 || y > canvas.height || Math.abs(y - last) < 4) continue;
    last = y;
    pen.beginPath();
    pen.moveTo(LEFT, y);
    pen.lineTo(canvas.width, y);
    pen.stroke();
  }
  pen.setLineDash([]);
}

/** Returns the box of an allocation on the canvas of blocks, in CSS pixels, clipped to the visible part. */
function boxOf(canvas, data, view, at) {
  const width = canvas.width, scale = canvas.height / (view.y1 - view.y0);
  const left = Math.max(LEFT, stepToX(view, width, data.born[at]));
  const right = Math.min(width, stepToX(view, width, Math.min(data.freed[at], data.steps)));
  const top = Math.max(0, canvas.height - (data.start[at] + data.bytes[at] - view.y0) * scale);
  const bottom = Math.min(canvas.height, canvas.height - (data.start[at] - view.y0) * scale);
  return { left, top, width: right - left, height: bottom - top };
}

/** Draws names and sizes in blocks that have room for them, and the uses of large blocks. */
function drawBlockLabels(canvas, data, view, theme) {
  const pen = canvas.pen, { groups } = data;
  const widest = 70 * (view.x1 - view.x0) / (canvas.width - LEFT), highest = 15 * (view.y1 - view.y0) / canvas.height;
  let room = 500;
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  for (let at = 0; at < data.count && data.born[at] < view.x1 && room; at++) {
    if (at % LIVES === 0 && (groups.longest[at / LIVES] < widest || groups.end[at / LIVES] <= view.x0)) { at += LIVES - 1; continue; }
    const long = Math.min(data.freed[at], view.x1) - Math.max(data.born[at], view.x0);
    if (long < widest || data.bytes[at] < highest || data.start[at] >= view.y1 || theme.off.has(data.fold[data.stream[at]])) continue;
    const box = boxOf(canvas, data, view, at);
    if (box.height < 15 || box.width < 70) continue;
    room--;
    const name = data.meta.strings[data.name[at]], size = bytesText(data.bytes[at]);
    let text = name ? `${name}  ${size}` : size;
    if (pen.measureText(text).width > box.width - 12) text = size;
    pen.fillStyle = '#10131a';
    pen.globalAlpha = .82;
    pen.fillText(text, box.left + 6, box.top + Math.min(box.height / 2, 12));
    pen.globalAlpha = 1;
    drawUses(canvas, data, view, at, box);
  }
}

/** Draws the uses of an allocation along the foot of its block: writes filled, reads hollow. */
function drawUses(canvas, data, view, at, box) {
  const first = data.useFirst[at], last = data.useFirst[at + 1];
  if (last === first || (last - first) * 7 > box.width || box.height < 22) return;
  const pen = canvas.pen;
  pen.fillStyle = pen.strokeStyle = '#10131a';
  pen.lineWidth = 1.2;
  for (let use = first; use < last; use++) {
    const x = stepToX(view, canvas.width, data.useStep[use] + .5 - data.shift);
    if (x < box.left || x > box.left + box.width) continue;
    pen.beginPath();
    pen.arc(x, box.top + box.height - 7, 2.5, 0, 7);
    if (data.useWrites[use]) pen.fill(); else pen.stroke();
  }
}

/** Draws the steps of the charts above, and below them the whole program with the visible part highlighted. */
function drawOverview(canvas, data, view, theme) {
  const pen = canvas.begin(), count = Math.floor(canvas.width - LEFT), top = 20, foot = canvas.height;
  if (!data.outline || data.outline.length !== count) {
    data.outline = columnsOf(data, { x0: 0, x1: data.steps }, count);
  }
  pen.fillStyle = theme.dim;
  pen.textBaseline = 'top';
  pen.textAlign = 'center';
  // If times are known, each number has its time beside it.
  const distance = decimalDistance((view.x1 - view.x0) / Math.max(2, count / (data.time.length ? 170 : 130)));
  for (let step = Math.max(0, Math.ceil(view.x0 / distance) * distance); step <= Math.min(view.x1, data.steps - data.shift); step += distance) {
    const x = stepToX(view, canvas.width, step + data.shift);
    const text = data.time.length && step < data.time.length ? `${countText(step)}: ${timeText(data.time[step])}` : countText(step);
    const half = data.time.length ? pen.measureText(text).width / 2 : 12;
    if (x > LEFT + half && x < canvas.width - Math.max(half, 24)) pen.fillText(text, x, 1);
  }
  pen.textAlign = 'right';
  pen.fillText(data.meta.unit, LEFT - 8, 1);
  pen.fillStyle = theme.idle;
  for (let column = 0; column < count; column++) {
    const event = data.outline[column];
    const tall = event < 0 ? 0 : data.total[event] / data.ceiling * (foot - top);
    pen.fillRect(LEFT + column, foot - tall, 1, tall);
  }
  const x = (step) => LEFT + Math.min(Math.max(step / data.steps, 0), 1) * count;
  const wide = Math.max(x(view.x1) - x(view.x0), 3);
  pen.fillStyle = pen.strokeStyle = theme.accent;
  pen.globalAlpha = .16;
  pen.fillRect(x(view.x0), top, wide, foot - top);
  pen.globalAlpha = 1;
  pen.lineWidth = 1;
  pen.strokeRect(x(view.x0) + .5, top + .5, wide - 1, foot - top - 1);
  pen.fillStyle = theme.bad;
  for (const mark of data.meta.marks) pen.fillRect(x(mark.step + data.shift) - .5, top, 1.5, foot - top);
}
