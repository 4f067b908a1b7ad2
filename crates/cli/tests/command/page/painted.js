// The picture of the blocks compared with one in which every block is painted, one by one from the latest to the
// earliest, where nothing is yet. Counts the pixels that differ, at several zooms, and with a stream hidden.
const { data } = page, all = page.whole(), span = all.x1 - all.x0, high = all.y1 - all.y0, counts = {};
const plain = (width, height) => {
    const words = new Uint32Array(width * height), { x0, x1, y0, y1 } = page.memoryView();
    const perStep = width / (x1 - x0), perByte = height / (y1 - y0);
    for (let at = data.count - 1; at >= 0; at--) {
        const low = data.start[at], top = low + data.bytes[at], index = page.colours.index[at];
        if (data.born[at] >= x1 || data.freed[at] <= x0 || low >= y1 || top <= y0 || index === 255) continue;
        const left = Math.floor(Math.max((data.born[at] - x0) * perStep, 0));
        let right = Math.floor(Math.min((Math.min(data.freed[at], data.steps) - x0) * perStep, width));
        let above = Math.floor(Math.max(height - (top - y0) * perByte, 0));
        const below = Math.floor(Math.min(Math.max(height - (low - y0) * perByte, above + 1), height));
        if (right - left > 1 && below - above > 2) above++;
        right = Math.max(right - (right - left > 2), left + 1);
        for (let y = above; y < below; y++) {
            for (let x = left; x < right; x++) words[y * width + x] ||= page.colours.pixels[index];
        }
    }
    return words;
};
for (const [name, zoom, tall, off] of [['all', 1, 1], ['half', 2, 1], ['part', 9, 3], ['near', 300, 1], ['hidden', 1, 1, true]]) {
    if (off) { page.off.add(0); page.recolour(); }
    const x0 = all.x0 + span * .4 * (1 - 1 / zoom), y0 = all.y0 + high * .3 * (1 - 1 / tall);
    page.look({ x0, x1: x0 + span / zoom, y0, y1: y0 + high / tall });
    await frame();
    const { words, image: { width, height } } = page.canvases.blocks, wished = plain(width, height);
    const count = { painted: 0, other: 0 };
    wished.forEach((wish, at) => {
        count.painted += wish !== 0;
        count.other += wish !== words[at];
    });
    counts[name] = count;
}
return counts;
