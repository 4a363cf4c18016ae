// The mask builder: what is blocked becomes −∞ before the softmax, so that every row of weights still sums to 1.

const PADDING = "<pad>";

function buildView({ tokens, scores }) {
  const size = tokens.length;
  const state = { causal: true, length: size, clicked: new Set(), query: size >> 1, key: 0 };
  const mask = {
    rule: (query, key) =>
      key >= state.length ? "the padding mask" : state.causal && key > query ? "the causal mask" : "",
    allows: (query, key) => !mask.rule(query, key) && !state.clicked.has(query * size + key),
    masked: (query) => scores[query].map((score, key) => (mask.allows(query, key) ? score : -Infinity)),
    weights: (query) => softmax(mask.masked(query)),
    name: (place) => (place < state.length ? tokens[place] : PADDING),
  };

  function choose(change) {
    Object.assign(state, change);
    state.query = inside(state.query, size);
    state.key = inside(state.key, size);
    for (const part of parts) part.update();
  }

  function toggle() {
    const cell = state.query * size + state.key;
    if (mask.rule(state.query, state.key)) return; // a rule blocks it: nothing to choose
    if (!state.clicked.delete(cell)) state.clicked.add(cell);
    choose({});
  }

  const parts = [
    controls(size, state, choose),
    matrices(tokens, scores, state, mask, choose, toggle),
    summary(size, state, mask),
    printed(size, mask),
  ];
  const [top, pictures, text, code] = parts.map((part) => part.element);
  const foot = make("div", { class: "foot" }, code, text);
  const view = make("section", { class: "view", "aria-label": "Mask builder" }, top, pictures, foot);
  view.style.setProperty("--longest", longest([...tokens, PADDING]));
  view.style.setProperty("--size", size);
  choose({});
  return view;
}

// exp(score) / Σ exp(score), and zeros for a row in which nothing is visible.
function softmax(row) {
  const most = Math.max(...row);
  if (most === -Infinity) return row.map(() => 0);
  const shares = row.map((score) => Math.exp(score - most));
  const total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(size, state, choose) {
  const causal = make("input", { type: "checkbox", class: "causal" });
  const length = make("input", { type: "range", class: "length", min: 0, max: size });
  const words = make("span", { class: "words" });
  causal.addEventListener("change", () => choose({ causal: causal.checked }));
  length.addEventListener("input", () => choose({ length: Number(length.value) }));
  const hint = make("span", { class: "hint" }, "Click a masked score to block it (arrow keys move, Space blocks)");
  const element = make("div", { class: "controls" }, make("label", {}, causal, " causal mask"));
  element.append(make("label", {}, "length ", length, words), hint);
  const update = () => {
    causal.checked = state.causal;
    length.value = state.length;
    words.textContent = `${state.length} of ${size}${state.length < size ? ", the rest is padding" : ""}`;
    length.setAttribute("aria-valuetext", `${state.length} of ${size} tokens`);
  };
  return { element, update };
}

function matrices(tokens, scores, state, mask, choose, toggle) {
  const panels = {
    scores: panel("scores", "one for each query and key", tokens),
    masked: panel("masked scores", "hatched: −∞", tokens),
    weights: panel("weights", "softmax of each row", tokens),
  };
  const tint = shades(scores.flat());
  const show = (cell, text, share, open) => {
    cell.className = open ? "" : "blocked";
    cell.style.setProperty("--weight", open ? share : 0);
    (cell.firstElementChild ?? cell).textContent = text; // the masked scores are buttons
  };
  const keyboard = blockers(tokens, panels.masked, state, mask, choose, toggle);
  const sums = tokens.map(() => make("td", { class: "sum" }));
  panels.weights.rows.forEach((row, query) => row.append(sums[query]));
  panels.weights.head.append(make("th", { scope: "col", class: "sum" }, make("span", {}, "sum")));

  const update = () => {
    tokens.forEach((_, query) => {
      const weights = mask.weights(query);
      weights.forEach((weight, key) => {
        const [score, open] = [scores[query][key], mask.allows(query, key)];
        show(panels.scores.cells[query][key], decimal(score), tint(score), true);
        show(panels.masked.cells[query][key], open ? decimal(score) : "−∞", tint(score), open);
        show(panels.weights.cells[query][key], open ? weight.toFixed(2) : "0", weight, open);
      });
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      sums[query].textContent = total ? total.toFixed(2) : "0";
      sums[query].classList.toggle("empty", !total);
    });
    Object.values(panels).forEach((one) => one.update(state, mask));
    keyboard.update();
  };
  const arrow = () => make("div", { class: "arrow", "aria-hidden": "true" }, "→");
  const parts = Object.values(panels).flatMap(({ element }, place) => (place ? [arrow(), element] : [element]));
  const element = make("div", { class: "panels" }, ...parts);
  return { element, update };
}

// A matrix with its title; only the first on a line shows the names of its rows, the others keep them for screen readers.
function panel(title, note, tokens) {
  const cells = tokens.map(() => tokens.map(() => make("td")));
  const names = tokens.map(() => make("th", { scope: "row" }, make("span")));
  const rows = tokens.map((_, query) => make("tr", {}, names[query], ...cells[query]));
  const matrix = matrixOf(tokens, make("td"), rows, true);
  const caption = make("figcaption", {}, make("b", {}, title), make("span", { class: "hint" }, note));
  const element = make("figure", { class: "panel", "aria-label": title }, caption, matrix);
  const head = matrix.querySelector("thead tr");
  const keys = [...head.querySelectorAll("span")];
  const update = (state, mask) => {
    tokens.forEach((_, place) => {
      for (const name of [keys[place], names[place].firstChild]) {
        name.textContent = shorten(mask.name(place));
        name.classList.toggle("padding", mask.name(place) === PADDING);
      }
      rows[place].classList.toggle("chosen", place === state.query);
    });
  };
  return { element, cells, rows, head, update };
}

// The masked scores as buttons: a click or Space blocks a score or gives it back, arrow keys move.
function blockers(tokens, { element, cells }, state, mask, choose, toggle) {
  const click = (query, key) => () => {
    choose({ query, key });
    toggle();
    focus();
  };
  const buttons = cells.map((row, query) => row.map((cell, key) => button("", click(query, key))));
  cells.forEach((row, query) => row.forEach((cell, key) => cell.append(buttons[query][key])));
  const focus = () => buttons[state.query][state.key].focus({ preventScroll: true });
  const step = (name, by) => () => {
    choose({ [name]: state[name] + by });
    focus();
  };
  onKeys(element, {
    ArrowUp: step("query", -1),
    ArrowDown: step("query", 1),
    ArrowLeft: step("key", -1),
    ArrowRight: step("key", 1),
    Home: step("key", -Infinity),
    End: step("key", Infinity),
  });
  const update = () => {
    buttons.forEach((row, query) =>
      row.forEach((target, key) => {
        const [rule, open] = [mask.rule(query, key), mask.allows(query, key)];
        const why = open ? "may attend" : `blocked by ${rule || "you"}`;
        target.title = `${mask.name(query)} → ${mask.name(key)}, ${why}`;
        target.tabIndex = query === state.query && key === state.key ? 0 : -1;
        target.setAttribute("aria-label", `${target.title}, ${target.textContent}`);
        target.setAttribute("aria-pressed", !open);
        target.setAttribute("aria-disabled", rule !== "");
        cells[query][key].classList.toggle("clicked", !open && !rule);
      }),
    );
  };
  return { update };
}

function summary(size, state, mask) {
  const chosen = make("p", { class: "summary", "aria-live": "polite" });
  const empty = make("p", { class: "note", role: "status" });
  const quoted = (places) => places.map((place) => `“${mask.name(place)}”`).join(", ");
  const places = [...Array(size).keys()];
  const update = () => {
    const seen = places.filter((key) => mask.allows(state.query, key));
    const share = seen.length ? `${quoted(seen)}. Its weights sum to 1.` : "nothing.";
    const count = seen.length ? `${seen.length} of ${size}: ` : "";
    chosen.replaceChildren(make("strong", {}, quoted([state.query])), ` may attend to ${count}${share}`);
    const blind = places.filter((query) => places.every((key) => !mask.allows(query, key)));
    empty.hidden = !blind.length;
    const why = "every score is −∞, and a softmax would divide 0 by 0 (NaN), so the weights are set to zeros.";
    empty.textContent = blind.length ? `No key is visible to ${quoted(blind)}: ${why}` : "";
  };
  return { element: make("div", { class: "said" }, chosen, empty), update };
}

// The mask as PyTorch prints it.
function printed(size, mask) {
  const text = make("pre");
  const caption = make("figcaption", {}, make("b", {}, "mask"), make("span", { class: "hint" }, "True: may attend"));
  const places = [...Array(size).keys()];
  const row = (query, whole) => {
    const yes = () => make("b", {}, whole ? "True" : " True"); // as wide as the widest of the matrix
    const no = () => make("span", { class: "false" }, "False");
    const entries = places.flatMap((key) => [key ? ", " : "", mask.allows(query, key) ? yes() : no()]);
    return [query ? "        [" : "tensor([[", ...entries, query < size - 1 ? "],\n" : "]])"];
  };
  const update = () => {
    const whole = places.every((query) => places.every((key) => mask.allows(query, key)));
    text.replaceChildren(...places.flatMap((query) => row(query, whole)));
  };
  return { element: make("figure", { class: "printed" }, caption, text), update };
}

// From the lowest score to the highest: 0 to 1.
function shades(scores) {
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  return (score) => (high > low ? (score - low) / (high - low) : 0);
}

function decimal(score) {
  return score.toFixed(1).replace("-0.0", "0.0").replace("-", "−");
}
