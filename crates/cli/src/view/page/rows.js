// Positions of lanes: below each other, with the lanes of a device under a row of its own.
//
// With one device and one process there are only lanes. Otherwise each group has a row that is open or closed. If it is
// closed, the lanes of the group are drawn in that row. The row shows all of the group's operations in both cases.

const LANE = { least: 26, most: 112, head: 8, help: 98, group: 22 };

class Rows {
  constructor(lanes) {
    this.lanes = lanes;
    this.areProcesses = new Set(lanes.map((lane) => lane.process)).size > 1;
    this.areDevices = new Set(lanes.filter((lane) => lane.stream !== null).map((lane) => lane.device)).size > 1;
    this.groups = this.grouped();
    this.of = new Int32Array(lanes.length).fill(-1);
    this.groups.forEach((group, at) => this.of.fill(at, group.from, group.to));
    this.scroll = 0;
    this.room = 0;
    this.arrange();
  }
  /** Lanes come sorted by process, host threads first, then by device. */
  grouped() {
    const groups = [], { lanes, areProcesses } = this;
    if (!areProcesses && !this.areDevices) return groups;
    lanes.forEach((lane, at) => {
      const isHost = lane.stream === null, last = groups[groups.length - 1], device = isHost ? -1 : lane.device;
      if (isHost && !areProcesses) return;
      if (last && last.process === lane.process && last.device === device) { last.to = at + 1; return; }
      const name = isHost ? 'host' : `device ${lane.device}`;
      groups.push({ name: areProcesses ? `process ${lane.process}, ${name}` : name, process: lane.process, device, from: at, to: at + 1, isShut: false });
    });
    return groups;
  }
  /** For each lane and each group's row: the height of group rows above its middle, and the count of lanes above. */
  arrange() {
    const { lanes, groups, of } = this;
    this.above = new Float64Array(lanes.length);
    this.before = new Float64Array(lanes.length);
    let rows = 0, open = 0;
    for (let lane = 0; lane < lanes.length; lane++) {
      const group = groups[of[lane]];
      if (group && group.from === lane) { Object.assign(group, { above: (rows + .5) * LANE.group, before: open }); rows++; }
      const isShut = group && group.isShut;
      this.above[lane] = isShut ? group.above : rows * LANE.group;
      this.before[lane] = isShut ? group.before : open + .5;
      if (!isShut) open++;
    }
    this.open = open;
  }
  /** The height of a lane if all of them fit; otherwise they are scrolled. */
  get high() {
    const room = this.room - LANE.head - this.groups.length * LANE.group;
    return Math.min(Math.max(room / Math.max(this.open, 1), LANE.least), LANE.most);
  }
  /** The height that all rows take. */
  get tall() { return LANE.head + this.groups.length * LANE.group + this.open * this.high; }
  /** The preferred height. */
  get wished() { return LANE.head + this.groups.length * LANE.group + this.open * LANE.most; }
  y(lane) { return LANE.head + this.above[lane] + this.before[lane] * this.high - this.scroll; }
  groupY(group) { return LANE.head + group.above + group.before * this.high - this.scroll; }
  isShut(lane) { return this.of[lane] >= 0 && this.groups[this.of[lane]].isShut; }
  /** Returns true if two lanes are in one row. */
  areOne(a, b) { return a === b || this.of[a] === this.of[b] && this.isShut(a); }
  groupAt(y) { return this.groups.findIndex((group) => Math.abs(y - this.groupY(group)) <= LANE.group / 2); }
  /** The lanes at a height: one, those of a group, or none. */
  lanesAt(y) {
    const group = this.groups[this.groupAt(y)];
    if (group) return [...Array(group.to - group.from).keys()].map((at) => group.from + at);
    for (let lane = 0; lane < this.lanes.length; lane++) {
      if (!this.isShut(lane) && Math.abs(y - this.y(lane)) <= this.high / 2) return [lane];
    }
    return [];
  }
  turn(at, isShut = !this.groups[at].isShut) {
    this.groups[at].isShut = isShut;
    this.arrange();
  }
  /** The name of a lane below its group, which names the device. */
  shortName(lane) { return this.groups.length ? this.lanes[lane].name.replace(/ of device \d+$/, '') : this.lanes[lane].name; }
  /** The name of a lane that is not below its group. */
  name(lane) {
    const { name, stream, device } = this.lanes[lane];
    return this.areDevices && stream !== null && !name.endsWith(` of device ${device}`) ? `${name} (device ${device})` : name;
  }
}
