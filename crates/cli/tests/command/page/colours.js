// The nearest pairs of colours, as colour-blind people see them: their distance in CIELAB, and which they are.
const views = { protan: [[.152286, 1.052583, -.204868], [.114503, .786281, .099216], [-.003882, -.048116, 1.051998]],
    deutan: [[.367322, .860646, -.227968], [.280085, .672501, .047413], [-.01182, .04294, .968881]] };
const linear = (part) => (part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
const lab = (hex, view) => {
    const rgb = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
    const seen = view.map((row) => Math.max(row.reduce((sum, part, at) => sum + part * rgb[at], 0), 0));
    const xyz = [[.4124, .3576, .1805, .9505], [.2126, .7152, .0722, 1], [.0193, .1192, .9505, 1.089]]
        .map(([r, g, b, white]) => Math.cbrt((r * seen[0] + g * seen[1] + b * seen[2]) / white));
    return [116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])];
};
const pairs = [];
for (const theme of ['light', 'dark']) {
    document.documentElement.dataset.theme = theme;
    page.newTheme();
    const colours = [...page.theme.streams, page.theme.bad];
    for (const [name, view] of Object.entries(views)) {
        const seen = colours.map((colour) => lab(colour, view));
        for (let a = 0; a < seen.length; a++) for (let b = 0; b < a; b++) {
            pairs.push([Math.hypot(...seen[a].map((part, at) => part - seen[b][at])), theme, name, colours[a], colours[b]]);
        }
    }
}
return pairs.sort((a, b) => a[0] - b[0]).slice(0, 12);
