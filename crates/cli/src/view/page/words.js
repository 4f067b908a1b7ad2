// Numbers and colours for display.

const $ = (id) => document.getElementById(id);

/** Formats bytes as the command does. */
function bytesText(bytes) {
  const units = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [4096, 'KiB', 1024]];
  for (const [from, name, unit] of units) if (bytes >= from) return `${(bytes / (unit || from)).toFixed(2)} ${name}`;
  return `${bytes} B`;
}
/** The label of a scale: without zeros after the point. */
const scaleText = (bytes) => bytesText(bytes).replace(/\.00 /, ' ');
const countText = (count) => Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
/** A count with its noun: `1 read`, `2 reads`, `0 reads`. */
const plural = (count, one, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;
/** A time in microseconds. */
function timeText(micros) {
  const units = [[1e6, 's'], [1e3, 'ms']];
  for (const [from, name] of units) if (micros >= from) return `${Number((micros / from).toPrecision(micros >= 1e9 ? 6 : 4))} ${name}`;
  return `${Math.round(micros)} \u00b5s`;
}
const hexText = (number) => '0x' + number.toString(16);

/** An element with text or children. */
function make(tag, classes, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children);
  return element;
}

// Colours that people with any kind of colour blindness can tell apart; red is reserved for violations.
const STREAMS = {
  light: ['#2199ff', '#b8860f', '#17a870', '#67d3ff', '#9464b1', '#d7e25f', '#f8deac', '#ffafc2', '#6e7b85'],
  dark: ['#14a2ff', '#f1bf14', '#66fce1', '#6dd7ff', '#7967b6', '#efe687', '#e3a8a1', '#e483c2', '#707183'],
};
const DEEDS = {
  light: { alloc: '#00835f', free: '#b87800', kernel: '#2a62c4', event: '#7c4fa8', sync: '#4a525e', graph: '#1c87b8' },
  dark: { alloc: '#2cbf94', free: '#f0b63a', kernel: '#79a8ff', event: '#b490d8', sync: '#b5bcc7', graph: '#6cc3ee' },
};
const RAMP = ['#30487c', '#3f7ba6', '#4aa99b', '#9cc46a', '#ecd04b', '#fbf3b0'];
const RAMP_STEPS = 32;

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}
function mixed(from, to, part) {
  return '#' + channels(from).map((low, at) => Math.round(low + (channels(to)[at] - low) * part)
    .toString(16).padStart(2, '0')).join('');
}
/** The 32-bit value of an image pixel of this colour. */
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
