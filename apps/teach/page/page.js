// The page of `python -m apps.teach`: strokes go to the server, answers come back.
const SHOWN = 40; // thumbnails per label before "more"
const $ = (id) => document.getElementById(id);
const board = $("canvas").getContext("2d");
const state = { key: null, strokes: [], drawings: [], answer: null, before: null, shown: {},
  unsaved: false };

// --- the server ---------------------------------------------------------------------------------

async function ask(path, method = "GET", body = undefined) {
  const options = { method, headers: {} };
  if (method === "POST") {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer; is python -m apps.teach still running?");
  }
  const content = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    const error = new Error(content.error ?? `the server answered ${reply.status}`);
    error.status = reply.status;
    throw error;
  }
  return content;
}

const lesson = (rest = "") => `lessons/${state.key}${rest}`;

function say(text, isError = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", isError);
}

async function trying(action) {
  try {
    return await action();
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

// --- lessons ------------------------------------------------------------------------------------

async function open(start) {
  say(start === "digits" ? "Learning 1,797 digits…" : "Opening a lesson…");
  const old = state.key;
  const asked = start === null ? {} : { start };
  if (old) asked.closing = old;
  begin(await ask("lessons", "POST", asked));
  say("");
}

function begin(found) {
  state.key = found.key;
  sessionStorage.setItem("lesson", found.key);
  state.drawings = found.drawings;
  state.shown = {};
  state.unsaved = found.unsaved ?? false;
  $("export").href = lesson("/drawings.npz");
  report(found);
  list();
  clear();
}

async function resume() {
  const key = sessionStorage.getItem("lesson");
  if (key) {
    try {
      begin(await ask(`lessons/${encodeURIComponent(key)}`));
      return;
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  await open(null);
}

async function names() {
  const found = await ask("names");
  for (const old of $("start").querySelectorAll("[data-saved]")) old.remove();
  for (const name of found.names) {
    const option = new Option(`saved: ${name}`, name);
    option.dataset.saved = "";
    $("start").append(option);
  }
  if (!state.chosen) $("start").value = found.start; // what the first lesson started from
  state.chosen = true;
}

async function save() {
  const name = prompt("Name of the lesson (letters, digits, hyphens and underscores)");
  if (!name) return;
  let found;
  try {
    found = await ask(lesson("/save"), "POST", { name });
  } catch (error) {
    if (error.status !== 409 || !confirm(`${error.message}. Replace it?`)) throw error;
    found = await ask(lesson("/save"), "POST", { name, replace: true });
  }
  state.unsaved = false;
  say(`Saved to ${found.path}`);
  await names();
}

// --- learning and answering ---------------------------------------------------------------------

async function learn(label) {
  if (!state.strokes.length) {
    say("Draw something first.", true);
    return;
  }
  const key = state.key;
  current = null; // what is drawn from now on is another drawing
  const found = await ask(lesson("/drawings"), "POST", { label, strokes: points() });
  if (key !== state.key) return; // another lesson was opened meanwhile
  state.drawings.push(found.drawing);
  state.unsaved = true;
  $("update").textContent = `${found.milliseconds} ms`;
  report(found);
  list();
  say(`Learned “${found.drawing.label}”.`);
  $("label").value = "";
  press();
  state.strokes = [];
  state.answer = null;
  paint();
  answers();
}

async function forget(number) {
  const key = state.key;
  const found = await ask(lesson(`/drawings/${number}`), "DELETE");
  if (key !== state.key) return;
  const place = [...$("groups").querySelectorAll("[data-number]")]
    .findIndex((thumb) => thumb.dataset.number === String(number));
  const focused = document.activeElement?.dataset.number === String(number);
  state.drawings = state.drawings.filter((drawing) => drawing.number !== number);
  state.unsaved = true;
  $("update").textContent = `${found.milliseconds} ms`;
  report(found);
  list();
  if (focused) { // the next drawing takes the place, so that keys go on from there
    const left = $("groups").querySelectorAll("[data-number]");
    (left[Math.min(place, left.length - 1)] ?? $("canvas")).focus();
  }
  say("Forgotten. The model is now the one that never saw this drawing.");
  if (state.answer?.labels.length) {
    state.before = Object.fromEntries(
      state.answer.labels.map((label, place) => [label, state.answer.probabilities[place]]),
    );
  }
  await answer();
}

let asking = false;
let again = false;

// One question at a time; the newest strokes are asked about when the answer is there.
async function answer() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    do {
      again = false;
      if (!state.strokes.length) {
        state.answer = null;
      } else {
        const asked = state.key;
        const found = await ask(lesson("/answer"), "POST", { strokes: points() });
        if (asked === state.key && state.strokes.length) state.answer = found;
      }
      answers();
      paint();
    } while (again);
  } catch (error) {
    say(error.message, true);
  } finally {
    asking = false;
  }
}

// Points in the unit square, at most 4,000 of them.
function points() {
  const total = state.strokes.reduce((sum, stroke) => sum + stroke.length, 0);
  const step = Math.ceil(total / 3000);
  return state.strokes.slice(0, 200).map((stroke) =>
    stroke.filter((_, place) => place % step === 0 || place === stroke.length - 1));
}

// --- what is shown ------------------------------------------------------------------------------

function report(found) {
  $("rows").textContent = found.rows.toLocaleString("en");
  $("features").textContent = found.features.toLocaleString("en");
  trying(judge);
}

// The accuracy takes longer than an update, so that it comes by itself.
async function judge() {
  const asked = state.key;
  const { accuracy } = await ask(lesson("/accuracy"));
  if (asked !== state.key) return;
  $("accuracy").textContent = accuracy === null ? "–" : `${(100 * accuracy).toFixed(1)} %`;
}

function answers() {
  const found = state.answer;
  const known = found?.labels.length > 0;
  const labels = new Set(state.drawings.map((drawing) => drawing.label));
  $("hint").textContent = known ? "Click a label to teach it." :
    labels.size < 2 ? "The model answers as soon as it knows two labels." :
    "Draw, and the answer appears here.";
  $("answer").replaceChildren();
  $("seen").hidden = !known;
  $("latency").textContent = known ? `${found.milliseconds} ms` : "–";
  $("gates").textContent = known
    ? `${found.open_gates.toLocaleString("en")} of ${found.gates.toLocaleString("en")}` : "–";
  if (!known) return;
  found.labels.slice(0, 8).forEach((label, place) => {
    const share = found.probabilities[place];
    const item = document.createElement("li");
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.style.width = `${100 * share}%`;
    const button = document.createElement("button");
    button.type = "button";
    button.title = `Teach “${label}”`;
    button.addEventListener("click", () => trying(() => learn(label)));
    const name = document.createElement("span");
    name.textContent = label;
    const value = document.createElement("span");
    value.textContent = `${(100 * share).toFixed(1)} %`;
    button.append(name);
    const before = state.before?.[label];
    if (before !== undefined && Math.abs(before - share) >= 0.0005) {
      const mark = document.createElement("div");
      mark.className = "before";
      mark.style.left = `${100 * before}%`;
      item.append(mark);
      const delta = document.createElement("span");
      delta.className = "delta";
      const points = 100 * (share - before);
      delta.textContent = `${points > 0 ? "+" : "−"}${Math.abs(points).toFixed(1)}`;
      button.append(delta);
    }
    button.append(value);
    item.prepend(bar);
    item.append(button);
    $("answer").append(item);
  });
  retina(found);
}

function retina(found) {
  const context = $("retina").getContext("2d");
  const picture = context.createImageData(28, 28);
  const ink = bytes(found.image);
  const most = Math.max(...found.contributions.map(Math.abs), 1e-9);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const paper = dark ? [20, 23, 28] : [251, 250, 247];
  const pen = dark ? [232, 230, 225] : [29, 36, 48];
  for (let place = 0; place < 784; place++) {
    const share = found.contributions[place] / most;
    const tint = share > 0 ? colours().for : colours().against;
    const strength = $("overlay").checked ? Math.min(1, Math.abs(share) * 1.2) * 0.8 : 0;
    for (let channel = 0; channel < 3; channel++) {
      const base = paper[channel] + (pen[channel] - paper[channel]) * (ink[place] / 255) * 0.75;
      picture.data[4 * place + channel] = base + (tint[channel] - base) * strength;
    }
    picture.data[4 * place + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

function colours() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? { for: [103, 174, 240], against: [238, 147, 85], ink: [232, 230, 225] }
    : { for: [31, 111, 196], against: [196, 87, 27], ink: [29, 36, 48] };
}

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

function list() {
  const groups = new Map();
  for (const drawing of state.drawings) {
    if (!groups.has(drawing.label)) groups.set(drawing.label, []);
    groups.get(drawing.label).push(drawing);
  }
  const order = [...groups.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  $("count").textContent = groups.size.toLocaleString("en");
  $("groups").replaceChildren(...order.map((label) => group(label, groups.get(label))));
  $("chips").replaceChildren(...order.slice(0, 30).map((label) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.textContent = label;
    chip.addEventListener("click", () => {
      $("label").value = label;
      press();
    });
    return chip;
  }));
  press();
}

function press() {
  for (const chip of $("chips").children) {
    chip.setAttribute("aria-pressed", String(chip.textContent === $("label").value));
  }
}

function group(label, drawings) {
  const row = document.createElement("div");
  row.className = "group";
  const title = document.createElement("h3");
  title.textContent = `${label} `;
  const count = document.createElement("small");
  count.textContent = drawings.length.toLocaleString("en");
  title.append(count);
  const thumbs = document.createElement("div");
  thumbs.className = "thumbs";
  const shown = state.shown[label] ?? SHOWN;
  const newest = drawings.slice(-shown).reverse();
  thumbs.append(...newest.map(thumbnail));
  if (drawings.length > newest.length) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.textContent = `${drawings.length - newest.length} more`;
    more.addEventListener("click", () => {
      state.shown[label] = drawings.length;
      list();
    });
    thumbs.append(more);
  }
  row.append(title, thumbs);
  return row;
}

function thumbnail(drawing) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.number = drawing.number;
  button.setAttribute("aria-label", `Forget this ${drawing.label}`);
  button.addEventListener("click", () => trying(() => forget(drawing.number)));
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 28;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(28, 28);
  const { ink } = colours();
  bytes(drawing.image).forEach((value, place) =>
    picture.data.set([...ink, value], 4 * place));
  context.putImageData(picture, 0, 0);
  button.append(canvas);
  return button;
}

// --- the canvas ---------------------------------------------------------------------------------

let current = null;

const position = (event) => {
  const box = $("canvas").getBoundingClientRect();
  const inside = (value) => Math.min(1, Math.max(0, value));
  return [inside((event.clientX - box.left) / box.width),
    inside((event.clientY - box.top) / box.height)];
};

$("canvas").addEventListener("pointerdown", (event) => {
  if (event.button !== 0 || current) return;
  $("canvas").setPointerCapture(event.pointerId);
  current = { pointer: event.pointerId, stroke: [position(event)] };
  state.strokes.push(current.stroke);
  state.before = null;
  paint();
});

$("canvas").addEventListener("pointermove", (event) => {
  if (current?.pointer !== event.pointerId) return;
  for (const each of event.getCoalescedEvents?.() ?? [event]) current.stroke.push(position(each));
  paint();
  answer();
});

for (const name of ["pointerup", "pointercancel"]) {
  $("canvas").addEventListener(name, (event) => {
    if (current?.pointer !== event.pointerId) return;
    current = null;
    answer();
  });
}

function paint() {
  const size = $("canvas").width;
  board.clearRect(0, 0, size, size);
  if (!state.strokes.length) invite();
  board.lineJoin = "round";
  board.lineWidth = size / 22;
  const shares = state.answer?.strokes;
  const most = Math.max(...(shares ?? []).flat().map(Math.abs), 1e-9);
  const sent = shares ? points() : [];
  const { ink } = colours();
  state.strokes.forEach((stroke, number) => {
    board.lineCap = "round";
    line(stroke, `rgb(${ink})`);
    board.lineCap = "butt"; // so that neighbours do not add up
    const share = $("overlay").checked ? shares?.[number] : null;
    if (!share) return;
    sent[number].slice(0, share.length).forEach((point, place) => {
      const value = share[place] / most;
      const tint = value > 0 ? colours().for : colours().against;
      const next = sent[number][Math.min(place + 1, share.length - 1)];
      line([point, next], `rgba(${tint}, ${Math.min(1, Math.abs(value) * 1.3)})`);
    });
  });
}

function invite() {
  const size = $("canvas").width;
  board.font = `${size / 16}px sans-serif`;
  board.textAlign = "center";
  board.fillStyle = "rgba(128, 128, 128, 0.7)";
  board.fillText("draw here", size / 2, size / 2);
}

function line(stroke, style) {
  const size = $("canvas").width;
  board.strokeStyle = style;
  board.beginPath();
  board.moveTo(stroke[0][0] * size, stroke[0][1] * size);
  for (const [x, y] of stroke.slice(stroke.length > 1 ? 1 : 0)) board.lineTo(x * size, y * size);
  board.stroke();
}

function clear() {
  current = null;
  state.strokes = [];
  state.answer = state.before = null;
  paint();
  answers();
}

function undo() {
  current = null;
  state.strokes.pop();
  state.before = null;
  paint();
  answer();
}

// --- controls -----------------------------------------------------------------------------------

$("teach").addEventListener("submit", (event) => {
  event.preventDefault();
  trying(() => learn($("label").value));
});
$("label").addEventListener("input", press);
$("clear").addEventListener("click", clear);
$("undo").addEventListener("click", undo);
$("overlay").addEventListener("change", () => { paint(); answers(); });
$("save").addEventListener("click", () => trying(save));
$("new").addEventListener("click", () => trying(async () => {
  if (state.unsaved && !confirm("Drawings that are not saved will be forgotten. Start anew?")) return;
  await open($("start").value);
}));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") clear();
  if (event.key === "z" && (event.ctrlKey || event.metaKey) && event.target !== $("label")) {
    event.preventDefault();
    undo();
  }
});
addEventListener("beforeunload", (event) => {
  if (state.unsaved) event.preventDefault(); // the browser asks; a closed tab loses its lesson
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); list(); });

trying(async () => {
  await resume();
  await names();
});
