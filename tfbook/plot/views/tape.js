// A machine at its tape: the slots, the two heads above and below them, and what was heard and said so far.

const PAUSE = 350; // milliseconds between two steps while it plays

function buildView({ sizes, ...bytes }) {
  const [steps, slots, width, heardBits, saidBits] = sizes;
  const values = Object.fromEntries(Object.entries(bytes).map(([name, text]) => [name, bytesOf(text)]));
  const state = { step: 0, timer: null };

  function show(step) {
    state.step = inside(step, steps);
    if (state.step === steps - 1) stop();
    for (const part of parts) part.update();
  }

  function stop() {
    clearInterval(state.timer);
    state.timer = null;
  }

  function play() {
    if (state.timer !== null) {
      stop();
      return show(state.step);
    }
    state.timer = setInterval(() => show(state.step + 1), PAUSE);
    show(state.step === steps - 1 ? 0 : state.step);
  }

  const parts = [
    controls(state, steps, show, play),
    bits("heard", values.heard, steps, heardBits, state),
    tape(values, slots, width, state),
    bits("said", values.said, steps, saidBits, state),
    said(values, slots, state, steps),
  ];
  const view = make("section", { class: "view", "aria-label": "A machine at its tape" });
  view.append(...parts.map((part) => part.element));
  show(0);
  return view;
}

// A byte of 0 to 200 as a color: one for each sign, stronger for larger numbers.
function tinted(byte) {
  const share = Math.abs(byte - 100);
  return `color-mix(in srgb, var(${byte < 100 ? "--key" : "--query"}) ${share}%, transparent)`;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(state, steps, show, play) {
  const start = button("Play", play, { class: "play" });
  const slider = make("input", { type: "range", min: 0, max: steps - 1, "aria-label": "Step" });
  slider.addEventListener("input", () => show(slider.valueAsNumber));
  const back = button("◀", () => show(state.step - 1), { "aria-label": "One step back" });
  const on = button("▶", () => show(state.step + 1), { class: "on", "aria-label": "One step on" });
  const element = make("div", { class: "controls" }, start, back, slider, on);
  const update = () => {
    slider.value = state.step;
    start.textContent = state.timer === null ? "Play" : "Pause";
  };
  return { element, update };
}

// A column of bits for each step; those of later steps are not shown yet.
function bits(name, bytes, steps, count, state) {
  const columns = Array.from({ length: steps }, (_, step) => {
    const cells = Array.from({ length: count }, (_, bit) => {
      const cell = make("i");
      cell.style.background = tinted(bytes[step * count + bit]);
      return cell;
    });
    return make("span", { class: "column" }, ...cells);
  });
  const element = make("div", { class: `bits ${name}`, "aria-hidden": "true" }, make("b", {}, name), ...columns);
  const update = () => columns.forEach((column, step) => column.classList.toggle("later", step > state.step));
  return { element, update };
}

// The slots side by side, the write head above and the read head below.
function tape({ memory, writing, reading }, slots, width, state) {
  const made = Array.from({ length: slots }, (_, slot) => {
    const cells = Array.from({ length: width }, () => make("i"));
    const heads = [make("u", { class: "write" }, "▼"), make("u", { class: "read" }, "▲")];
    const number = make("small", {}, slot % 5 ? "" : String(slot));
    return { cells, heads, element: make("span", { class: "column" }, heads[0], ...cells, heads[1], number) };
  });
  const columns = made.map((slot) => slot.element);
  const element = make("div", { class: "bits slots", "aria-hidden": "true" }, make("b", {}, "tape"), ...columns);
  const update = () => {
    made.forEach(({ cells, heads }, slot) => {
      const place = state.step * slots + slot;
      cells.forEach((cell, number) => (cell.style.background = tinted(memory[place * width + number])));
      heads[0].style.opacity = writing[place] / 100;
      heads[1].style.opacity = reading[place] / 100;
    });
  };
  return { element, update };
}

function said({ writing, reading }, slots, state, steps) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const place = (weights) => {
    const row = [...weights.slice(state.step * slots, (state.step + 1) * slots)];
    const most = Math.max(...row);
    return most < 50 ? "no slot in particular" : `slot ${row.indexOf(most)}`;
  };
  const update = () => {
    const text = `Step ${state.step + 1} of ${steps}: it writes to ${place(writing)} and reads from ${place(reading)}.`;
    element.textContent = text;
  };
  return { element, update };
}
