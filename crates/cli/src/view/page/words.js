// Numbers and colours as people read them.

const $ = (id) => document.getElementById(id);

function bytesText(bytes) {
  const units = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [4096, 'KiB', 1024]];
  for (const [from, name, unit] of units) if (bytes >= from) return `${round3(bytes / (unit || from))} ${name}`;
  return `${bytes} B`;
}
const round3 = (number) => (number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2));
const countText = (count) => Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
const hexText = (number) => '0x' + number.toString(16);

/** An element with text in it, or with children. */
function make(tag, classes, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children);
  return element;
}

const STREAMS = {
  light: ['#4269d0', '#e2a416', '#f2604d', '#45b3a0', '#3ca951', '#ee7fae', '#9a5fe8', '#9c6b4e', '#9498a0'],
  dark: ['#6489ea', '#e8b33f', '#ff7d6b', '#62c9b6', '#57bd6a', '#f592bd', '#b184f2', '#b88765', '#8b919b'],
};
const RAMP = ['#5468d6', '#3c9fd0', '#38b58c', '#93c14b', '#e8b23a', '#e2653b'];
const RAMP_STEPS = 32;

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}
function mixed(from, to, part) {
  return '#' + channels(from).map((low, at) => Math.round(low + (channels(to)[at] - low) * part)
    .toString(16).padStart(2, '0')).join('');
}
/** The word that an image's pixel of this colour is. */
function pixel(colour) {
  const [red, green, blue] = channels(colour);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
function ramp(part) {
  const at = Math.min(Math.max(part, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return mixed(RAMP[low], RAMP[low + 1], at - low);
}

/** Distances of 1, 2, 5 times a power of ten. */
function decimalDistance(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((distance) => distance >= wanted) || 10 * power;
}
const binaryDistance = (wanted) => 2 ** Math.ceil(Math.log2(Math.max(wanted, 1)));
