// The decoding view: a sentence is written word by word; before each word the decoder looks somewhere else.

const FONT = '14px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif'; // as in base.css, to measure words
const MARGIN = 76; // pixels: the names of the rows, left of the words
const GAP = 8; // pixels between words
const NARROWEST = 40; // pixels of a word: room for its weight
const BAR = 64; // pixels of a bar whose weight is 1
const ROWS = { bars: 84, source: 92, query: 206, written: 252, height: 286 }; // pixels from the top
const BOX = 30; // pixels: height of a word
const FAINTEST = 0.02; // weight from which there is a line
const WORTH_SAYING = 0.1; // weight from which an earlier step keeps its trace, and a source word is named
const GLIDE = 450; // milliseconds of a move from one step to the next
const PAUSE = 1600; // milliseconds between steps that play

function buildView(data) {
  const { source, target } = data;
  const bytes = bytesOf(data.weights);
  const weights = target.map((_, step) =>
    Array.from(bytes.subarray(step * source.length, (step + 1) * source.length), (byte) => byte / 100),
  );
  const state = { step: 0, timer: null };

  function choose(step) {
    state.step = inside(step, target.length);
    for (const part of parts) part.update();
  }

  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    choose(state.step);
  }

  function play() {
    const next = () => (view.isConnected && state.step < target.length - 1 ? choose(state.step + 1) : pause());
    state.timer = setInterval(next, PAUSE);
    choose(state.step === target.length - 1 ? 0 : state.step + 1);
  }

  const moveTo = (place) => () => {
    if (state.timer) pause();
    choose(place());
  };
  const moves = {
    back: moveTo(() => state.step - 1),
    next: moveTo(() => state.step + 1),
    first: moveTo(() => 0),
    last: moveTo(() => target.length - 1),
    toggle: () => (state.timer ? pause() : play()),
  };
  const parts = [
    controls(target, state, moves),
    summary(data, weights, state),
    scene(data, weights, state),
    candidates(data, state),
  ];
  const [top, text, drawing, likely] = parts.map((part) => part.element);
  const main = make("div", { class: "main" }, drawing, likely);
  const view = make("section", { class: "view", "aria-label": "Decoding, step by step" }, top, main, text);
  main.addEventListener("click", () => view.querySelector(".next").focus({ preventScroll: true })); // for the keys
  onKeys(view, { ArrowLeft: moves.back, ArrowRight: moves.next, Home: moves.first, End: moves.last });
  choose(0);
  return view;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(target, state, moves) {
  const back = button("← Back", moves.back, { class: "back" });
  const play = button("", moves.toggle, { class: "play" });
  const next = button("Next →", moves.next, { class: "next" });
  const place = make("span", { class: "place" });
  const hint = make("span", { class: "hint" }, "Keys: ← → step, Home and End jump to either end");
  const buttons = make("span", { class: "buttons", role: "group", "aria-label": "Steps" }, back, play, next);
  const update = () => {
    back.setAttribute("aria-disabled", state.step === 0); // not disabled: that would lose the focus, and with it the keys
    next.setAttribute("aria-disabled", state.step === target.length - 1);
    play.textContent = state.timer ? "Pause" : "Play";
    place.textContent = `word ${state.step + 1} of ${target.length}`;
  };
  return { element: make("div", { class: "controls" }, buttons, place, hint), update };
}

function summary({ source, target }, weights, state) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const update = () => {
    const row = weights[state.step].map((weight, place) => ({ weight, place }));
    row.sort((a, b) => b.weight - a.weight || a.place - b.place);
    const most = row.slice(0, 3).filter(({ weight }, rank) => rank === 0 || weight >= WORTH_SAYING);
    const places = most.map(({ weight, place }) => `“${source[place]}” (${weight.toFixed(2)})`);
    const when = state.step ? `After “${target[state.step - 1]}”` : "At the start";
    const word = make("strong", {}, `“${target[state.step]}”`);
    element.replaceChildren(`${when}, the decoder looks most at ${places.join(", ")} and writes `, word, ".");
  };
  return { element, update };
}

function candidates({ target, candidates: steps }, state) {
  const element = make("div", { class: "candidates" });
  if (!steps.length) return { element, update: () => {} };
  const rows = Array.from({ length: Math.max(...steps.map((step) => step.length)) }, () => {
    const parts = ["word", "bar", "share"].map((name) => make("span", { class: name }));
    return { row: make("li", {}, ...parts), parts };
  });
  element.append(make("p", {}, "likeliest next words"), make("ol", {}, ...rows.map(({ row }) => row)));
  const update = () => {
    rows.forEach(({ row, parts: [word, bar, share] }, place) => {
      const [text, hundredths] = steps[state.step][place] ?? ["", 0];
      row.hidden = !text;
      row.classList.toggle("written", text === target[state.step]);
      word.textContent = shorten(text);
      word.title = text;
      bar.style.setProperty("--share", hundredths / 100);
      share.textContent = (hundredths / 100).toFixed(2);
    });
  };
  return { element, update };
}

// ---- the drawing: bars and source words above, the query that moves, the written words below ----

function scene({ source, target }, weights, state) {
  const [above, below] = [columns(source), columns(target)];
  const width = MARGIN + Math.max(above.width, below.width);
  const place = (side, i) => MARGIN + (width - MARGIN - side.width) / 2 + side.middles[i];
  const keys = source.map((_, i) => place(above, i));
  const slots = target.map((_, i) => place(below, i));

  const bars = keys.map((x) => draw("rect", { x: x - 11, width: 22, class: "bar" }));
  const numbers = keys.map((x) => draw("text", { x, class: "number" }));
  const sources = source.map((word, i) => box(word, keys[i], above.widths[i], ROWS.source, "key"));
  const written = target.map((word, i) => box(word, slots[i], below.widths[i], ROWS.written, "word"));
  const past = slots.map((x, step) => trace(x, keys, weights[step]));
  const lines = keys.map(() => draw("path", { class: "line" }));
  const query = draw("g", { class: "query" }, ...pill());
  const drawing = draw("svg", { viewBox: `0 0 ${width} ${ROWS.height}`, role: "img" }, ...names(), ...past, ...lines);
  drawing.append(...bars, ...numbers, ...sources, ...written, query);
  const element = make("div", { class: "scene" }, drawing);
  element.style.setProperty("--width", `${width}px`);

  const show = ({ x, row }) => {
    query.setAttribute("transform", `translate(${x} 0)`);
    element.scrollLeft = (x * element.scrollWidth) / width - element.clientWidth / 2;
    row.forEach((weight, i) => {
      const top = ROWS.bars - BAR * weight;
      filled(bars[i], { y: top, height: BAR * weight }, []);
      numbers[i].setAttribute("y", top - 5);
      numbers[i].textContent = weight.toFixed(2);
      filled(lines[i], { d: curve(x, ROWS.query, keys[i], ROWS.source + BOX) }, []);
      lines[i].style.setProperty("--weight", weight < FAINTEST ? 0 : weight);
    });
  };
  const glide = glider({ x: slots[0], row: weights[0] }, show);
  const update = () => {
    written.forEach((word, i) => word.classList.toggle("ahead", i > state.step));
    written.forEach((word, i) => word.classList.toggle("now", i === state.step));
    past.forEach((trace, i) => trace.classList.toggle("ahead", i >= state.step));
    drawing.setAttribute("aria-label", `Written: ${target.slice(0, state.step + 1).join(" ")}`);
    glide({ x: slots[state.step], row: weights[state.step] });
  };
  return { element, update };
}

// Widths of words in a row, their middles from its left end, and its width.
function columns(words) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `bold ${FONT}`;
  const widths = words.map((word) => Math.max(NARROWEST, Math.ceil(pen.measureText(shorten(word)).width) + 18));
  const middles = widths.map((width, i) => width / 2 + widths.slice(0, i).reduce((sum, left) => sum + left + GAP, 0));
  return { widths, middles, width: middles.at(-1) + widths.at(-1) / 2 + 2 };
}

function box(word, x, width, y, kind) {
  const shape = draw("rect", { x: x - width / 2, y, width, height: BOX, rx: 6 });
  const text = draw("text", { x, y: y + BOX / 2 }, shorten(word));
  return draw("g", { class: `box ${kind}` }, draw("title", {}, word), shape, text);
}

function pill() {
  const shape = draw("rect", { x: -28, y: ROWS.query, width: 56, height: 24, rx: 12 });
  const [tail, tip] = [ROWS.query + 24, ROWS.written - 3];
  const arrow = draw("path", { d: `M0,${tail} V${tip} M-4,${tip - 6} L0,${tip} L4,${tip - 6}` });
  return [shape, draw("text", { y: ROWS.query + 12 }, "query"), arrow];
}

function names() {
  const rows = [
    ["weights", ROWS.bars - 10, "weight"],
    ["source", ROWS.source + BOX / 2, "key"],
    ["decoder", ROWS.query + 12, "query"],
    ["written", ROWS.written + BOX / 2, "word"],
  ];
  return rows.map(([name, y, kind]) => draw("text", { x: 0, y, class: `name ${kind}` }, name));
}

// What an earlier step looked at stays as a faint trace.
function trace(x, keys, row) {
  const seen = row.map((weight, i) => ({ weight, i })).filter(({ weight }) => weight >= WORTH_SAYING);
  const paths = seen.map(({ weight, i }) => {
    const path = draw("path", { d: curve(x, ROWS.written, keys[i], ROWS.source + BOX) });
    path.style.setProperty("--weight", weight);
    return path;
  });
  return draw("g", { class: "trace" }, ...paths);
}

function curve(x, y, toX, toY) {
  const middle = (y + toY) / 2;
  return `M${x},${y} C${x},${middle} ${toX},${middle} ${toX},${toY}`;
}

// Calls `show` with what lies between the last goal and a new one, frame by frame; at once for readers who want no motion.
function glider(start, show) {
  let [from, now, frame] = [start, start, 0];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  return (goal) => {
    cancelAnimationFrame(frame);
    from = now;
    const begin = performance.now();
    const step = (time) => {
      const share = still.matches ? 1 : Math.min(1, Math.max(0, (time - begin) / GLIDE));
      now = between(from, goal, share * share * (3 - 2 * share));
      show(now);
      if (share < 1) frame = requestAnimationFrame(step);
    };
    step(begin);
  };
}

function between(from, goal, share) {
  const mix = (a, b) => a + (b - a) * share;
  return { x: mix(from.x, goal.x), row: goal.row.map((weight, i) => mix(from.row[i], weight)) };
}
