// Handles the pointer and the keys.

class Input {
  constructor(page) {
    this.page = page;
    for (const id of ['order', 'timeline', 'blocks']) this.chart(id);
    this.overview();
    this.tools();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => page.newTheme());
    new ResizeObserver(() => page.resize()).observe($('charts'));
    addEventListener('keydown', (event) => this.key(event));
  }
  tools() {
    const { page } = this;
    $('query').oninput = (event) => page.searching.ask(event.target.value);
    $('colour').onchange = (event) => {
      page.mode = event.target.value;
      event.target.blur();
      page.recolour();
      page.side.draw();
      page.draw();
    };
    $('fit').onclick = () => page.look(page.whole());
    $('theme').onclick = () => page.toggleTheme();
    $('picture').onclick = () => page.save();
    $('picture').hidden = !page.order.count;
    $('keys').onclick = () => $('help').showModal();
    $('help').onclick = (event) => event.target === $('help') && $('help').close();
  }
  wheel(event, id, element) {
    const { page } = this, { lanes, view } = page, perPixel = (view.x1 - view.x0) / element.clientWidth;
    event.preventDefault();
    const factor = Math.exp((event.deltaMode ? 30 : 1) * (event.deltaY || (event.shiftKey ? event.deltaX : 0)) * .0016);
    if (event.shiftKey && id === 'blocks') page.zoomAddresses(factor, page.offsetAt(event.offsetY));
    else if (event.shiftKey && id === 'order') {
      lanes.scroll(event.deltaY || event.deltaX);
      page.draw();
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) page.pan(event.deltaX * perPixel, 0);
    else page.zoomTime(factor, page.stepAt(event.offsetX));
  }
  chart(id) {
    const element = $(id), { page } = this;
    let moved = 0, range = null;
    element.addEventListener('wheel', (event) => this.wheel(event, id, element), { passive: false });
    element.addEventListener('pointerdown', (event) => {
      moved = 0;
      range = event.shiftKey ? page.stepAt(event.offsetX) : null;
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener('pointermove', (event) => {
      page.pointer = { chart: id, x: event.offsetX, y: event.offsetY };
      if (event.buttons & 1) {
        moved += Math.abs(event.movementX) + Math.abs(event.movementY);
        if (range !== null) page.range = [range, page.stepAt(event.offsetX)].sort((a, b) => a - b);
        else if (moved > 3) this.drag(event, id, element);
      }
      page.hover = id === 'blocks' && event.offsetX > LEFT ? page.blockAt(event.offsetX, event.offsetY) : -1;
      const over = id === 'order' ? page.lanes.at(page.view, event.offsetX, event.offsetY) : -1;
      if (over !== page.over) { page.over = over; page.drawLanes(); }
      if (event.offsetX <= LEFT) page.pointer = null;
      page.tell();
      if (!page.waiting) page.paintOver();
    });
    element.addEventListener('pointerup', () => {
      if (range !== null && moved > 3) page.select(page.range);
      range = null;
    });
    element.addEventListener('pointerleave', () => {
      page.pointer = null;
      page.hover = page.over = -1;
      page.tell();
      if (id === 'order') page.drawLanes(); else page.paintOver();
    });
    element.addEventListener('click', (event) => moved <= 3 && !event.shiftKey && this.click(id, event));
    element.addEventListener('dblclick', () => {
      if (page.hover >= 0) page.visit(page.hover);
      if (id === 'order' && page.over >= 0) page.zoomTime(.25, page.over + .5);
    });
  }
  drag(event, id, element) {
    const { page } = this, { view, lanes } = page;
    const perStep = (view.x1 - view.x0) / (element.clientWidth - LEFT), perByte = (view.y1 - view.y0) / element.clientHeight;
    if (id === 'order') lanes.scroll(-event.movementY);
    page.pan(-event.movementX * perStep, id === 'blocks' ? event.movementY * perByte : 0);
  }
  click(id, event) {
    const { page } = this;
    if (id === 'blocks') {
      page.held = page.hover;
      page.operation = -1;
      page.side.show('allocations');
      page.draw();
    } else if (id === 'order') {
      const group = page.order.rows.groupAt(event.offsetY);
      if (group >= 0 && (page.over < 0 || event.offsetX < LEFT)) { page.turn(group); return; }
      if (page.over < 0) return;
      page.pick(page.over);
      const capture = page.lanes.foldedAt(page.over), graph = page.data.opGraph[page.over];
      if (capture) page.openGraph(capture.graph);
      else if (graph && page.data.deed[page.over] === DEED.launch) page.openGraph(graph - 1);
    }
  }
  overview() {
    const element = $('overview'), { page } = this;
    const go = (event) => {
      if (!(event.buttons & 1)) return;
      const middle = (event.offsetX - LEFT) / (element.clientWidth - LEFT) * page.data.steps, half = (page.view.x1 - page.view.x0) / 2;
      page.pan(middle - half - page.view.x0, 0);
    };
    element.addEventListener('pointerdown', (event) => {
      element.setPointerCapture(event.pointerId);
      go(event);
    });
    element.addEventListener('pointermove', go);
  }
  key(event) {
    const { page } = this, { view } = page;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const steps = (view.x1 - view.x0) * .12, offset = (view.y1 - view.y0) * .12;
    const middle = page.pointer ? page.stepAt(page.pointer.x) : (view.x0 + view.x1) / 2, inOrder = event.target === $('order');
    const keys = {
      ArrowLeft: () => (inOrder ? page.go(-1, 0) : page.pan(-steps, 0)), ArrowRight: () => (inOrder ? page.go(1, 0) : page.pan(steps, 0)),
      ArrowUp: () => (inOrder ? page.go(0, -1) : page.pan(0, offset)), ArrowDown: () => (inOrder ? page.go(0, 1) : page.pan(0, -offset)),
      ',': () => page.go(-1, 0), '.': () => page.go(1, 0),
      '+': () => page.zoomTime(.7, middle), '=': () => page.zoomTime(.7, middle), '-': () => page.zoomTime(1 / .7, middle),
      0: () => page.look(page.whole()), Home: () => page.look(page.whole()),
      '/': () => $('query').focus(), n: () => page.walk(1), p: () => page.walk(-1),
      v: () => page.jump(page.mark + 1), V: () => page.jump(page.mark - 1), g: () => page.data.meta.graphs.length && page.side.show('graphs'),
      r: () => page.select([view.x0, view.x1]), s: () => page.save(), t: () => page.toggleTheme(), '?': () => $('help').showModal(),
      d: () => page.turnAll(),
      Enter: () => this.enter(),
      Escape: () => page.letGo(),
    };
    if (event.target === $('query')) {
      if (event.key === 'Escape') { page.letGo(); $('query').blur(); }
      if (event.key === 'Enter') { $('query').blur(); page.searching.begin($('query').value); }
      return;
    }
    const act = keys[event.key];
    // In lists, Enter and the arrows belong to the buttons.
    const own = event.target.closest('button, a, select, #panel, #tabs') && /^(Enter|Arrow| )/.test(event.key);
    if (!act || own) return;
    event.preventDefault();
    act();
  }
  enter() {
    const { page } = this, graph = page.operation >= 0 && page.data.opGraph[page.operation];
    if (graph) page.openGraph(graph - 1);
    else if (page.held >= 0) page.visit(page.held);
  }
}
