// The page's data, unpacked into flat arrays.
//
// `meta` is small and JSON. The columns are varints, one column after the other, deflated, in base 64. embed.rs writes
// both and documents the content of each column.

const GROUP = 64; // The number of events, or of groups of them, whose greatest total is kept.
const CHECK = 16; // The number of events between two checkpoints of the memory held by each stream.
const LIVES = 32; // The number of allocations that are skipped at once if none of them is visible.
const SPAN_ROWS = 3; // The number of rows of annotations that are drawn; the list also has those that are nested deeper.
const FOLDED = 9; // The number of streams that have a colour; the last one stands for all others.

class Columns {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  number() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  }
  column(count, make = Float64Array, decode = (number) => number) {
    const column = new make(count);
    for (let at = 0; at < count; at++) column[at] = decode(this.number(), at, column);
    return column;
  }
}

const signed = (number) => (number % 2 ? -(number + 1) / 2 : number / 2);
const summed = (number, at, column) => (at ? column[at - 1] : 0) + number;

async function unpack() {
  const meta = JSON.parse(document.getElementById('meta').textContent);
  const text = atob(document.getElementById('data').textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const columns = new Columns(new Uint8Array(await new Response(plain).arrayBuffer()));
  const count = meta.allocations;
  const born = columns.column(count, Float64Array, summed);
  const lasts = columns.column(count);
  const bytes = columns.column(count, Float64Array, (index) => meta.sizes[index]);
  const stream = columns.column(count, Uint32Array);
  const freeStream = columns.column(count, Uint32Array);
  const start = columns.column(count, Float64Array, (number, at, column) => (at ? column[at - 1] : 0) + signed(number) * meta.grain);
  const name = columns.column(count, Uint32Array);
  const site = columns.column(count, Uint32Array);
  const freeSite = columns.column(count, Uint32Array);
  const reservedStep = columns.column(meta.reserved, Float64Array, summed);
  const reservedBytes = columns.column(meta.reserved);
  const useCount = columns.column(meta.uses ? count : 0, Uint32Array);
  const useFirst = new Uint32Array(count + 1);
  for (let at = 0; at < useCount.length; at++) useFirst[at + 1] = useFirst[at] + useCount[at];
  let life = 0, index = 0, last = 0;
  const useStep = columns.column(meta.uses, Float64Array, (number) => {
    while (index >= useFirst[life + 1]) { life++; last = born[life]; }
    if (index++ === useFirst[life]) last = born[life];
    return (last += number);
  });
  const useStream = columns.column(meta.uses, Uint32Array);
  const useWrites = columns.column(meta.uses, Uint8Array);
  const lane = columns.column(meta.operations, Uint32Array);
  const deed = columns.column(meta.operations, Uint8Array);
  const label = columns.column(meta.operations, Uint32Array);
  const opSite = columns.column(meta.operations, Uint32Array);
  const opNumber = columns.column(meta.operations);
  const opGraph = columns.column(meta.operations, Uint32Array);
  const refused = columns.column(meta.operations, Uint8Array);
  const arrowTo = columns.column(meta.arrows, Float64Array, summed);
  const arrowFrom = columns.column(meta.arrows, Float64Array, (length, at) => arrowTo[at] - length);
  const arrowTie = columns.column(meta.arrows, Uint8Array);
  const ownStep = columns.column(meta.recorded, Float64Array, summed);
  const ownBytes = columns.column(meta.recorded);
  const stack = columns.column(meta.stacks.length ? count : 0, Uint32Array);
  const time = columns.column(meta.times, Float64Array, summed);
  const pool = columns.column(meta.pools.length ? count : 0, Uint32Array);
  const freed = new Float64Array(count);
  for (let at = 0; at < count; at++) freed[at] = lasts[at] ? born[at] + lasts[at] : Infinity;
  return { meta, count, born, freed, bytes, stream, freeStream, start, name, site, freeSite,
    reservedStep, reservedBytes, useFirst, useStep, useStream, useWrites, lane, deed, label, opSite, opNumber, opGraph, refused,
    ownStep, ownBytes, stack, time, pool, ...spanRows(meta.spans), arrowTo, arrowFrom, arrowTie, groups: groupsOf(count, born, freed, start, bytes), ...curve(meta, count, born, freed, bytes, stream) };
}

/** The row of each span: the first free one. Spans of rows that are not shown have none. */
function spanRows(spans) {
  const ends = [], spanRow = spans.map(({ from, to }) => {
    let row = ends.findIndex((end) => end <= from);
    if (row < 0) row = ends.length;
    if (row >= SPAN_ROWS) return -1;
    ends[row] = to;
    return row;
  });
  return { spanRow, spanRows: ends.length };
}

/** For each group of allocations: the latest end, the longest life, and the range of addresses. */
function groupsOf(count, born, freed, start, bytes) {
  const groups = Math.ceil(count / LIVES), end = new Float64Array(groups), longest = new Float64Array(groups);
  const low = new Float64Array(groups).fill(Infinity), high = new Float64Array(groups);
  for (let at = 0; at < count; at++) {
    const group = Math.floor(at / LIVES);
    end[group] = Math.max(end[group], freed[at]);
    longest[group] = Math.max(longest[group], freed[at] - born[at]);
    low[group] = Math.min(low[group], start[at]);
    high[group] = Math.max(high[group], start[at] + bytes[at]);
  }
  return { end, longest, low, high };
}

/** Memory after each event: the total, its maximum by groups, and the bytes of each stream at checkpoints. */
function curve(meta, count, born, freed, bytes, stream) {
  const ends = new Float64Array(count);
  let frees = 0;
  // One number holds the step and, in the low part, the allocation, so that sorting numbers sorts by step.
  const room = 2 ** Math.ceil(Math.log2(count + 1));
  for (let at = 0; at < count; at++) if (freed[at] < Infinity) ends[frees++] = freed[at] * room + at;
  const sorted = ends.subarray(0, frees).sort();
  const events = count + frees;
  const step = new Float64Array(events), change = new Float64Array(events), who = new Uint8Array(events);
  const heldBy = new Float64Array(meta.streams.length);
  for (let at = 0; at < count; at++) heldBy[stream[at]] += bytes[at];
  const order = [...heldBy.keys()].sort((a, b) => heldBy[b] - heldBy[a] || a - b);
  const fold = new Uint8Array(meta.streams.length);
  const shown = Math.min(order.length, FOLDED);
  if (order.length <= FOLDED) order.sort((a, b) => a - b);
  order.forEach((id, rank) => { fold[id] = Math.min(rank, FOLDED - 1); });
  const total = new Float64Array(events);
  const held = new Float64Array((Math.floor(events / CHECK) + 1) * shown);
  const now = new Float64Array(shown);
  let a = 0, f = 0, sum = 0, peak = 0;
  for (let at = 0; at < events; at++) {
    if (at % CHECK === 0) held.set(now, (at / CHECK) * shown);
    const end = f < frees ? Math.floor(sorted[f] / room) : Infinity;
    // Frees at a step come before allocations at it.
    const isFree = a >= count || end <= born[a];
    const id = isFree ? sorted[f++] % room : a++;
    step[at] = isFree ? freed[id] : born[id];
    who[at] = fold[stream[id]];
    change[at] = isFree ? -bytes[id] : bytes[id];
    now[who[at]] += change[at];
    sum += change[at];
    total[at] = sum;
    if (sum > total[peak]) peak = at;
  }
  const tops = [];
  for (let size = GROUP, below = null; ; size *= GROUP) {
    const groups = Math.ceil(events / size);
    const best = new Uint32Array(groups);
    for (let g = 0; g < groups; g++) {
      const from = g * GROUP, to = Math.min(below ? below.length : events, from + GROUP);
      let top = below ? below[from] : from;
      for (let at = from + 1; at < to; at++) {
        const candidate = below ? below[at] : at;
        if (total[candidate] > total[top]) top = candidate;
      }
      best[g] = top;
    }
    tops.push(best);
    below = best;
    if (groups <= 1) break;
  }
  return { events, step, change, who, total, held, tops, fold, shown, order, peak };
}

/** The number of events before this step. */
function eventsBefore(data, step) {
  let low = 0, high = data.events;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.step[middle] < step) low = middle + 1; else high = middle;
  }
  return low;
}

/** The event among `from..to` after which most bytes are live; there is at least one event. */
function topEvent(data, from, to) {
  let best = from;
  let at = from;
  while (at < to) {
    let level = 0, size = 1;
    while (level < data.tops.length && at % (size * GROUP) === 0 && at + size * GROUP <= to) { size *= GROUP; level++; }
    const candidate = level ? data.tops[level - 1][at / size] : at;
    if (data.total[candidate] > data.total[best]) best = candidate;
    at += size;
  }
  return best;
}

/** Writes the bytes that each shown stream holds after an event into `into`; zeros for event -1. */
function heldAfter(data, event, into) {
  if (event < 0) return into.fill(0);
  const check = Math.floor(event / CHECK);
  for (let at = 0; at < data.shown; at++) into[at] = data.held[check * data.shown + at];
  for (let at = check * CHECK; at <= event; at++) into[data.who[at]] += data.change[at];
  return into;
}

/** The index of the change of reserved bytes that applies at a step; -1 before the first. */
function reservedIndex(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1; else high = middle;
  }
  return low - 1;
}
