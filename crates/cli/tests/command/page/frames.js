// The longest and the middle frame at several zooms while the page moves, the time of each chart, and the delay by
// typing: the longest time in which the page did nothing else.
const frames = {}, all = page.whole(), span = all.x1 - all.x0;
for (const zoom of [1, 10, 100, 1000, 20000]) {
    const times = [];
    for (let at = 0; at < 24; at++) {
        const x0 = all.x0 + (span - span / zoom) * (at + .5) / 24;
        page.look({ x0, x1: x0 + span / zoom });
        await frame();
        times.push(page.frame);
    }
    times.sort((a, b) => a - b);
    frames[zoom] = { middle: times[12], longest: times[23] };
}
page.look(all);
await frame();
const parts = {};
for (const [name, act] of Object.entries(page.parts())) {
    const began = performance.now();
    for (let at = 0; at < 8; at++) act();
    page.canvases[name].pen.getImageData(200, 5, 1, 1);
    parts[name] = (performance.now() - began) / 8;
}
let last = performance.now(), held = 0, found = null, began = last;
const done = page.searching.done;
page.searching.done = (result) => { done(result); found = performance.now(); };
for (const text of ['l', 'la', 'lay', 'layer7', '>64k']) {
    $('query').value = text;
    $('query').dispatchEvent(new Event('input'));
    for (let at = 0; at < 3; at++) {
        await new Promise((done) => setTimeout(done, 0));
        held = Math.max(held, performance.now() - last);
        last = performance.now();
    }
}
while (!found) {
    await new Promise((done) => setTimeout(done, 0));
    held = Math.max(held, performance.now() - last);
    last = performance.now();
}
return { operations: page.order.count, frames, parts, held, search: found - began, opened: performance.timing.loadEventEnd - performance.timing.navigationStart,
    found: page.found.count };
