// Draws a graph: nodes in layers, edges downwards. layout.rs computes the positions.

const NODE = { wide: 168, high: 40, across: 200, down: 84 };

class GraphView {
  constructor(data) {
    this.data = data;
    this.dialog = $('graph');
    this.canvas = this.dialog.querySelector('canvas');
    const move = (event) => {
      this.pointer = [event.offsetX, event.offsetY];
      if (event.buttons) { this.x += event.movementX; this.y += event.movementY; }
      this.draw();
    };
    this.canvas.addEventListener('pointermove', move);
    this.canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const factor = Math.exp(-event.deltaY * .0016), scale = Math.min(Math.max(this.scale * factor, .02), 3);
      this.x = event.offsetX - (event.offsetX - this.x) * scale / this.scale;
      this.y = event.offsetY - (event.offsetY - this.y) * scale / this.scale;
      this.scale = scale;
      this.draw();
    }, { passive: false });
    new ResizeObserver(() => this.dialog.open && this.draw()).observe(this.canvas);
  }
  open(index, theme) {
    this.graph = this.data.meta.graphs[index];
    this.theme = theme;
    this.pointer = null;
    this.dialog.querySelector('h2').textContent = `${this.graph.name}: ${plural(this.graph.nodes.length, 'node')}, ${plural(this.graph.edges.length, 'edge')}`;
    this.dialog.showModal();
    const right = Math.max(...this.graph.nodes.map((node) => node.x)) * NODE.across + NODE.wide;
    const foot = Math.max(...this.graph.nodes.map((node) => node.y)) * NODE.down + NODE.high;
    const { clientWidth, clientHeight } = this.canvas;
    this.scale = Math.min(1.25, (clientWidth - 40) / right, Math.max((clientHeight - 40) / foot, .35));
    this.x = (clientWidth - right * this.scale) / 2;
    this.y = Math.max(20, (clientHeight - foot * this.scale) / 2);
    this.draw();
  }
  /** The node below the pointer. */
  hovered() {
    if (!this.pointer) return null;
    const x = (this.pointer[0] - this.x) / this.scale, y = (this.pointer[1] - this.y) / this.scale;
    return this.graph.nodes.find((node) => x >= node.x * NODE.across && x <= node.x * NODE.across + NODE.wide
      && y >= node.y * NODE.down && y <= node.y * NODE.down + NODE.high) || null;
  }
  draw() {
    const { canvas, graph, theme } = this, ratio = window.devicePixelRatio || 1, pen = canvas.getContext('2d');
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    pen.setTransform(this.scale * ratio, 0, 0, this.scale * ratio, this.x * ratio, this.y * ratio);
    pen.font = '13px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif';
    const over = this.hovered(), number = graph.nodes.indexOf(over);
    for (const [from, to] of graph.edges) {
      const near = over && (from === number || to === number);
      this.edge(pen, graph.nodes[from], graph.nodes[to], near ? theme.accent : theme.edge, near ? 2.2 : 1.2);
    }
    const { deeds } = theme, fills = { alloc: deeds.alloc, free: deeds.free, kernel: deeds.kernel, wait: deeds.event, record: deeds.event };
    for (const node of graph.nodes) {
      const x = node.x * NODE.across, y = node.y * NODE.down;
      pen.beginPath();
      pen.roundRect(x, y, NODE.wide, NODE.high, 7);
      pen.fillStyle = theme.panel;
      pen.fill();
      pen.lineWidth = node.bad || node === over ? 2.5 : 1.4;
      pen.strokeStyle = node.bad ? theme.bad : fills[node.kind] || theme.edge;
      pen.stroke();
      pen.fillStyle = fills[node.kind] || theme.edge;
      pen.fillRect(x + 1, y + 8, 4, NODE.high - 16);
      pen.fillStyle = theme.text;
      pen.textBaseline = 'middle';
      pen.textAlign = 'left';
      pen.fillText(this.cut(pen, node.label), x + 13, y + (node.note ? 13 : NODE.high / 2));
      if (node.note) {
        pen.fillStyle = theme.dim;
        pen.fillText(this.cut(pen, node.note), x + 13, y + 28);
      }
    }
    for (const [from, to] of graph.missing) this.missing(pen, graph.nodes[from], graph.nodes[to], theme.bad);
    this.tell(pen, over);
  }
  /** Draws a missing path: dashed, between the facing sides of the nodes, or downwards if one is below the other. */
  missing(pen, from, to, colour) {
    const down = to.y > from.y, right = to.x >= from.x;
    const x0 = from.x * NODE.across + (down ? NODE.wide / 2 : right ? NODE.wide : 0), y0 = from.y * NODE.down + (down ? NODE.high : NODE.high / 2);
    const x1 = to.x * NODE.across + (down ? NODE.wide / 2 : right ? 0 : NODE.wide), y1 = to.y * NODE.down + (down ? 0 : NODE.high / 2);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 2;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
    pen.setLineDash([]);
    const length = Math.hypot(x1 - x0, y1 - y0) || 1, dx = (x1 - x0) / length, dy = (y1 - y0) / length;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - 9 * dx - 5 * dy, y1 - 9 * dy + 5 * dx);
    pen.lineTo(x1 - 9 * dx + 5 * dy, y1 - 9 * dy - 5 * dx);
    pen.fill();
  }
  edge(pen, from, to, colour, thick) {
    const x0 = from.x * NODE.across + NODE.wide / 2, y0 = from.y * NODE.down + NODE.high;
    const x1 = to.x * NODE.across + NODE.wide / 2, y1 = to.y * NODE.down;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = thick;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0, y0 + 26, x1, y1 - 30, x1, y1 - 6);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1 - 4, y1 - 7);
    pen.lineTo(x1 + 4, y1 - 7);
    pen.lineTo(x1, y1);
    pen.fill();
  }
  cut(pen, text) {
    if (pen.measureText(text).width <= NODE.wide - 22) return text;
    let length = text.length;
    while (length > 1 && pen.measureText(text.slice(0, length) + '\u2026').width > NODE.wide - 22) length--;
    return text.slice(0, length) + '\u2026';
  }
  /** Shows the whole text of the node below the pointer, along the foot. */
  tell(pen, node) {
    this.dialog.querySelector('.hint').textContent = node
      ? [node.label, node.note, node.site].filter(Boolean).join('   ') : `wheel zooms, drag moves, hover tells; Esc closes${this.graph.missing.length ? '; red and dashed: a path that is missing' : ''}`;
  }
}
