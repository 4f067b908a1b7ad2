// A pen that writes SVG instead of pixels. It has only the canvas methods that the lanes need.

class SvgPen {
  constructor(width, height, back) {
    Object.assign(this, { width, height, parts: [], path: '', stack: [], clips: 0, fillStyle: '#000', strokeStyle: '#000',
      lineWidth: 1, globalAlpha: 1, font: '12px sans-serif', textAlign: 'left', textBaseline: 'middle', dash: [] });
    this.ruler = document.createElement('canvas').getContext('2d');
    this.parts.push(`<rect width="${width}" height="${height}" rx="10" fill="${back}"/>`);
  }
  text() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" `
      + `viewBox="0 0 ${this.width} ${this.height}">\n${this.parts.join('\n')}\n</svg>\n`;
  }
  save() { this.stack.push({ fillStyle: this.fillStyle, strokeStyle: this.strokeStyle, lineWidth: this.lineWidth, globalAlpha: this.globalAlpha, clips: this.clips }); }
  restore() {
    const state = this.stack.pop();
    for (; this.clips > state.clips; this.clips--) this.parts.push('</svg>');
    Object.assign(this, state);
  }
  /** Clips to the rectangle drawn last; the lanes need nothing else. */
  clip() {
    const [x, y, wide, high] = this.box;
    this.parts.push(`<svg x="${x}" y="${y}" width="${wide}" height="${high}" viewBox="${x} ${y} ${wide} ${high}">`);
    this.clips++;
  }
  beginPath() { this.path = ''; }
  add(letter, ...numbers) { this.path += letter + numbers.map((number) => +number.toFixed(1)).join(' '); }
  moveTo(x, y) { this.add('M', x, y); }
  lineTo(x, y) { this.add('L', x, y); }
  bezierCurveTo(...at) { this.add('C', ...at); }
  quadraticCurveTo(...at) { this.add('Q', ...at); }
  closePath() { this.path += 'Z'; }
  rect(x, y, wide, high) { this.box = [x, y, wide, high]; this.add('M', x, y); this.add('h', wide); this.add('v', high); this.add('h', -wide); this.path += 'Z'; }
  /** A full circle; the lanes need nothing else. */
  arc(x, y, radius) {
    this.add('M', x - radius, y);
    this.add('a', radius, radius, 0, 1, 0, 2 * radius, 0);
    this.add('a', radius, radius, 0, 1, 0, -2 * radius, 0);
  }
  setLineDash(dash) { this.dash = dash; }
  alpha() { return this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ''; }
  fill() { if (this.path) this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${dash}${this.alpha()}/>`);
  }
  fillRect(x, y, wide, high) {
    this.beginPath();
    this.rect(x, y, wide, high);
    this.fill();
  }
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }
  fillText(text, x, y) {
    const [, weight, size] = this.font.match(/^(?:(\d+) )?(\d+)px/) || [0, '', 12];
    const anchor = { right: 'end', center: 'middle' }[this.textAlign] || 'start';
    // The reader may not have the fonts for which the boxes were sized.
    const wide = text ? ` textLength="${this.measureText(text).width.toFixed(1)}" lengthAdjust="spacingAndGlyphs"` : '';
    const plain = text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
    this.parts.push(`<text x="${x.toFixed(1)}" y="${(y + size * .35).toFixed(1)}" font-family="Helvetica, Arial, sans-serif" font-size="${size}"${wide}`
      + `${weight ? ` font-weight="${weight}"` : ''} text-anchor="${anchor}" fill="${this.fillStyle}"${this.alpha()}>${plain}</text>`);
  }
}
