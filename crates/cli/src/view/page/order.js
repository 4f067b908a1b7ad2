// Operations and the edges between them: indexes to look them up, and words to describe them.
//
// If the order is unknown there are no operations, and all of this is empty.

const DEED = Object.fromEntries(['alloc', 'free', 'kernel', 'record', 'wait', 'sync', 'launch', 'capture', 'captureEnd',
  'build', 'instantiate', 'tell', 'end', 'other'].map((name, at) => [name, at]));
const ROLES = ['allocates', 'frees', 'reads', 'writes'];

/** Groups numbers: the start of each group, and the members in their order. */
function grouped(count, groups, groupOf) {
  const first = new Uint32Array(groups + 1);
  for (let at = 0; at < count; at++) first[groupOf(at) + 1]++;
  for (let group = 0; group < groups; group++) first[group + 1] += first[group];
  const next = first.slice(), members = new Uint32Array(count);
  for (let at = 0; at < count; at++) members[next[groupOf(at)]++] = at;
  return { first, members };
}

class Order {
  constructor(data) {
    this.data = data;
    this.count = data.meta.operations;
    this.lanes = data.meta.lanes;
    this.rows = new Rows(this.lanes);
    this.byLane = grouped(this.count, this.lanes.length, (step) => data.lane[step]);
    this.byFrom = grouped(data.meta.arrows, this.count, (at) => data.arrowFrom[at]);
    this.sides = new Map();
    data.meta.marks.forEach((mark, index) => mark.sides.forEach((step) => {
      this.sides.set(step, [...this.sides.get(step) || [], index]);
    }));
    this.captures = this.findCaptures();
  }
  /** Captures: their first and last step, and their lanes. */
  findCaptures() {
    const { deed, opGraph, lane } = this.data, open = new Map(), captures = [];
    if (!this.data.meta.graphs.length) return captures;
    for (let step = 0; step < this.count; step++) {
      const graph = opGraph[step];
      if (!graph) continue;
      if (deed[step] === DEED.capture) open.set(graph, { graph: graph - 1, from: step, to: step, top: lane[step], foot: lane[step] });
      const capture = open.get(graph);
      if (!capture || deed[step] === DEED.launch) continue;
      capture.to = step;
      capture.top = Math.min(capture.top, lane[step]);
      capture.foot = Math.max(capture.foot, lane[step]);
      if (deed[step] === DEED.captureEnd) { captures.push(capture); open.delete(graph); }
    }
    return [...captures, ...open.values()];
  }
  /** The first of a lane's operations at or after a step, as an index in `byLane.members`. */
  firstOf(lane, step) {
    const { first, members } = this.byLane;
    return lowerBound(members, first[lane], first[lane + 1], step);
  }
  /** The operation of these lanes that is nearest to a place in time, if it is within `slack`. */
  nearest(lanes, at, slack) {
    const { first, members } = this.byLane;
    let best = -1;
    for (const [lane, place] of lanes.flatMap((lane) => [0, 1].map((back) => [lane, this.firstOf(lane, at - .5) - back]))) {
      if (place < first[lane] || place >= first[lane + 1]) continue;
      const step = members[place];
      if (Math.abs(step + .5 - at) <= slack && (best < 0 || Math.abs(step + .5 - at) < Math.abs(best + .5 - at))) best = step;
    }
    return best;
  }
  /** The effects of a step on memory: lives and roles. */
  memoryOf(step) {
    const { data } = this;
    if (!this.byStep) {
      const uses = data.meta.uses, frees = data.count, all = data.count + frees + uses, steps = this.count;
      const at = (index) => (index < data.count ? data.born[index] : index < data.count + frees ? data.freed[index - data.count]
        : data.useStep[index - data.count - frees]);
      this.byStep = grouped(all, steps + 1, (index) => Math.min(at(index), steps));
      this.lifeOfUse = new Uint32Array(uses);
      for (let life = 0; life < data.count; life++) this.lifeOfUse.fill(life, data.useFirst[life], data.useFirst[life + 1]);
    }
    const { first, members } = this.byStep, found = [];
    for (let place = first[step]; place < first[step + 1]; place++) {
      const index = members[place], use = index - 2 * data.count;
      if (index < data.count) found.push([index, 0]);
      else if (use < 0) found.push([index - data.count, 1]);
      else found.push([this.lifeOfUse[use], 2 + data.useWrites[use]]);
    }
    return found;
  }
  /** The operations that make, use and free an allocation, at most `most`. */
  operationsOf(life, most = 400) {
    const { data } = this, steps = [data.born[life]];
    for (let use = data.useFirst[life]; use < data.useFirst[life + 1] && steps.length < most; use++) steps.push(data.useStep[use]);
    if (data.freed[life] < this.count) steps.push(data.freed[life]);
    return steps.filter((step) => step < this.count);
  }
  /** Arrows that end at a step, and those that begin there. */
  arrowsTo(step) {
    const { arrowTo } = this.data, found = [];
    for (let at = lowerBound(arrowTo, 0, arrowTo.length, step); at < arrowTo.length && arrowTo[at] === step; at++) found.push(at);
    return found;
  }
  arrowsFrom(step) {
    return [...this.byFrom.members.subarray(this.byFrom.first[step], this.byFrom.first[step + 1])];
  }
  /** What is written in a mark. */
  title(step) {
    const { data } = this, deed = data.deed[step], text = data.meta.strings[data.label[step]];
    if (text && data.meta.written) return text;
    const name = { [DEED.sync]: 'sync', [DEED.captureEnd]: 'end capture' }[deed] || data.meta.deeds[deed];
    if (deed === DEED.kernel) return text || 'kernel';
    if (text) return `${name} ${text}`;
    if (deed !== DEED.alloc && deed !== DEED.free) return name;
    const [touched] = this.memoryOf(step);
    return touched ? `${name} ${data.meta.strings[data.name[touched[0]]] || `#${touched[0]}`}` : name;
  }
  /** The name of an operation in a sentence: `` stream `left`, op 3 ``. */
  where(step) {
    const { data } = this, number = data.opNumber[step];
    return `${this.rows.name(data.lane[step])}${number ? `, op ${countText(number)}` : ''}`;
  }
  facts(step) {
    const { data } = this, facts = [['on', this.where(step)]], site = data.meta.strings[data.opSite[step]];
    if (site) facts.push(['at', site]);
    if (data.refused[step]) facts.push(['refused', 'it is not done']);
    for (const [life, role] of this.memoryOf(step).slice(0, 12)) facts.push([ROLES[role], `${nameOf(data, life)}, ${bytesText(data.bytes[life])}`]);
    const tie = (at, other) => `${this.title(other)} (${this.where(other)}), by ${data.meta.ties[data.arrowTie[at]]}`;
    for (const at of this.arrowsTo(step).slice(0, 8)) facts.push(['comes after', tie(at, data.arrowFrom[at])]);
    for (const at of this.arrowsFrom(step).slice(0, 8)) facts.push(['comes before', tie(at, data.arrowTo[at])]);
    return facts;
  }
  /** Sums over a range of steps. */
  sums(from, to) {
    const { data } = this, deeds = new Float64Array(data.meta.deeds.length), lanes = new Float64Array(this.lanes.length);
    const first = Math.max(0, Math.ceil(from)), last = Math.min(this.count, Math.floor(to));
    for (let step = first; step < last; step++) { deeds[data.deed[step]]++; lanes[data.lane[step]]++; }
    return { deeds, lanes, count: Math.max(last - first, 0) };
  }
}

/** The first index from `low` on whose number is not less. */
function lowerBound(numbers, low, high, number) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < number) low = middle + 1; else high = middle;
  }
  return low;
}

/** Memory in a range of steps: what was allocated and freed, and the minimum and maximum of the live bytes. */
function memorySums(data, from, to) {
  const begin = eventsBefore(data, from), end = eventsBefore(data, to);
  const live = (event) => (event < 0 ? 0 : data.total[event]);
  const sums = { allocations: 0, frees: 0, allocated: 0, freed: 0, before: live(begin - 1), after: live(end - 1), most: live(begin - 1), least: live(begin - 1) };
  for (let event = begin; event < end; event++) {
    const change = data.change[event];
    if (change > 0) { sums.allocations++; sums.allocated += change; } else { sums.frees++; sums.freed -= change; }
    sums.most = Math.max(sums.most, data.total[event]);
    sums.least = Math.min(sums.least, data.total[event]);
  }
  return sums;
}
