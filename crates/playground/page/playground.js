// The page around the checker: a text goes to the WebAssembly, and what that says is shown. It judges nothing itself.
"use strict";

const $ = (id) => document.getElementById(id);
/** How long nothing is typed before the text is judged, in milliseconds. */
const PAUSE = 200;

let exported = null;

/** The checker, loaded again where a fault has ended it. */
async function checker() {
  if (!exported) {
    const bytes = Uint8Array.from(atob(WASM), (byte) => byte.charCodeAt(0));
    exported = (await WebAssembly.instantiate(bytes, {})).instance.exports;
  }
  return exported;
}

/** What is said of a text. */
async function judge(text) {
  const it = await checker();
  try {
    const bytes = new TextEncoder().encode(text);
    const at = it.playground_input(bytes.length);
    new Uint8Array(it.memory.buffer, at, bytes.length).set(bytes);
    const length = it.playground_judge();
    // The memory may have grown meanwhile.
    return JSON.parse(new TextDecoder().decode(new Uint8Array(it.memory.buffer, it.playground_output(), length)));
  } catch (error) {
    exported = null;
    throw error;
  }
}

const element = (name, text, className) => {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
};

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

function verdict(answer) {
  if (answer.refusal) {
    const [line, why] = answer.refusal;
    return [line ? `Line ${line}: ${why}` : why, "wrong"];
  }
  const wrong = answer.findings.filter((it) => !it.is_advice).length;
  const advice = answer.findings.length - wrong;
  const also = advice ? `, ${count(advice, "piece")} of advice` : "";
  return wrong ? [`${count(wrong, "wrong order")}${also}`, "wrong"] : [`The order is right${also}.`, "right"];
}

/** Lights the lines of both sides behind the text. */
function mark(text, answer) {
  const wrong = new Set(answer.findings.map((it) => it.line));
  const side = new Set(answer.findings.flatMap((it) => it.others));
  if (answer.refusal) wrong.add(answer.refusal[0]);
  const lines = text.split("\n").map((line, at) => {
    const kind = wrong.has(at + 1) ? "wrong" : side.has(at + 1) ? "side" : "";
    return element("span", line, kind);
  });
  $("marks").replaceChildren(...lines);
}

function showCorrection(text, answer) {
  $("correction").hidden = !answer.fixed && !answer.left.length;
  const before = new Map();
  for (const line of text.split("\n")) before.set(line, (before.get(line) ?? 0) + 1);
  const lines = (answer.fixed ?? "").split("\n").map((line) => {
    const left = before.get(line) ?? 0;
    before.set(line, left - 1);
    return element("span", line, left > 0 ? "" : "added");
  });
  $("fixed").replaceChildren(...(answer.fixed ? lines : []));
  $("take").hidden = !answer.fixed;
  $("take").onclick = () => {
    $("text").value = answer.fixed;
    show();
  };
  $("left-over").replaceChildren(...answer.left.map((it) => element("li", it)));
}

let asked = 0;

/** Judges what is written now, and shows the answer. */
async function show() {
  const text = $("text").value, number = (asked += 1);
  let answer;
  try {
    answer = await judge(text);
  } catch (error) {
    answer = { refusal: [0, `a fault of the checker: ${error}`], findings: [], differences: [], left: [], page: "" };
  }
  if (number !== asked) return;
  const [words, kind] = verdict(answer);
  $("verdict").textContent = words;
  $("verdict").className = kind;
  mark(text, answer);
  $("findings").replaceChildren(...answer.findings.map((it) => {
    const item = document.createElement("li");
    item.append(element("pre", it.text));
    return item;
  }));
  for (const difference of answer.differences) {
    $("findings").append(element("li", `not as the program expects: ${difference}`));
  }
  showCorrection(text, answer);
  if (answer.page) $("page").srcdoc = answer.page;
  document.body.dataset.shown = String(number);
}

/** The example that the address names, or the first one. */
function open() {
  const name = decodeURIComponent(location.hash.slice(1));
  const example = EXAMPLES.find((it) => it.name === name) ?? EXAMPLES[0];
  $("examples").value = example.name;
  $("text").value = example.text;
  show();
}

const groups = new Map();
for (const { name } of EXAMPLES) {
  const group = name.slice(0, name.lastIndexOf("/"));
  if (!groups.has(group)) {
    const made = document.createElement("optgroup");
    made.label = group;
    groups.set(group, made);
    $("examples").append(made);
  }
  const option = element("option", name.slice(group.length + 1));
  option.value = name;
  groups.get(group).append(option);
}
$("examples").onchange = () => {
  location.hash = $("examples").value;
};
window.onhashchange = open;
$("reference").querySelector("pre").textContent = REFERENCE;
$("language").onclick = () => $("reference").showModal();
let timer = 0;
$("text").oninput = () => {
  clearTimeout(timer);
  timer = setTimeout(show, PAUSE);
};
$("text").onscroll = () => {
  $("marks").scrollTop = $("text").scrollTop;
  $("marks").scrollLeft = $("text").scrollLeft;
};
open();
