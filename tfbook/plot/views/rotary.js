// Rotary positions: a query and a key are moved along a sentence; each pair turns, and the angle between them tells how
// far apart they stand.

const SIZE = 168; // pixels of a clock
const RADIUS = 66; // of a vector of length 1

function buildView({ tokens, query, key, speeds }) {
  const last = tokens.length - 1;
  const state = { m: Math.min(3, last), n: 1 };
  const vectors = { m: query, n: key };
  const angle = (end, pair, position) =>
    Math.atan2(vectors[end][pair][1], vectors[end][pair][0]) + position * speeds[pair];
  const length = (end, pair) => Math.hypot(...vectors[end][pair]);
  const product = (pair, distance) =>
    length("m", pair) * length("n", pair) * Math.cos(angle("m", pair, distance) - angle("n", pair, 0));
  const score = (distance) => speeds.reduce((sum, _, pair) => sum + product(pair, distance), 0);
  const world = { tokens, speeds, last, state, angle, length, product, score };

  function choose(change) {
    Object.assign(state, change);
    state.m = inside(state.m, tokens.length);
    state.n = inside(state.n, tokens.length);
    for (const part of parts) part.update();
  }

  const clocks = speeds.map((_, pair) => clock(world, pair));
  const parts = [controls(world, choose), sentence(world), ...clocks, curve(world), summary(world)];
  const [top, words, ...rest] = parts.map((part) => part.element);
  const text = rest.pop();
  const pictures = make("div", { class: "pictures" }, ...rest);
  const view = make("section", { class: "view", "aria-label": "Rotary positions" }, top, words, pictures, text);
  choose({});
  return view;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls({ tokens, last, state }, choose) {
  const sliders = { m: slider("query", "m"), n: slider("key", "n") };
  const both = (by) => () => choose({ m: state.m + by, n: state.n + by });
  const back = button("← both", both(-1), { class: "back", "aria-label": "move both one word to the left" });
  const on = button("both →", both(1), { class: "on", "aria-label": "move both one word to the right" });

  function slider(role, name) {
    const range = make("input", { type: "range", class: role, min: 0, max: last });
    const label = make("label", { class: role }, make("b", {}, role), ` at ${name} = `, make("output"), range);
    range.addEventListener("input", () => choose({ [name]: Number(range.value) }));
    return { range, label };
  }

  const element = make("div", { class: "controls" }, sliders.m.label, sliders.n.label, back, on);
  const update = () => {
    for (const [name, { range, label }] of Object.entries(sliders)) {
      range.value = state[name];
      range.setAttribute("aria-valuetext", `${state[name]}, ${tokens[state[name]]}`);
      label.querySelector("output").textContent = state[name];
    }
    back.disabled = Math.min(state.m, state.n) === 0;
    on.disabled = Math.max(state.m, state.n) === last;
  };
  return { element, update };
}

function sentence({ tokens, state }) {
  const words = tokens.map((token, place) => {
    const marks = make("span", { class: "marks" });
    const word = make("span", { class: "word" }, shorten(token));
    return make("li", {}, marks, word, make("span", { class: "hint" }, place));
  });
  const element = make("ol", { class: "sentence", "aria-hidden": "true" }, ...words);
  const update = () => {
    words.forEach((word, place) => {
      const [asks, answers] = [place === state.m, place === state.n];
      word.className = `${asks ? "asks" : ""} ${answers ? "answers" : ""}`;
      const marks = [[asks, "query"], [answers, "key"]].filter(([here]) => here);
      word.firstChild.replaceChildren(...marks.map(([, role]) => make("b", { class: role }, role)));
    });
  };
  return { element, update };
}

// One pair of coordinates: both vectors as hands of a clock, faint where they would stand at position 0.
function clock({ state, speeds, angle, length, product }, pair) {
  const picture = draw("svg", { viewBox: `${-SIZE / 2} ${-SIZE / 2} ${SIZE} ${SIZE}`, width: SIZE, height: SIZE });
  picture.setAttribute("aria-hidden", "true");
  const caption = make("figcaption", {}, make("b", {}, `pair ${pair + 1}`));
  caption.append(make("span", { class: "hint" }, ` turns ${degrees(speeds[pair])} per word`));
  const said = make("div", { class: "said" });
  const scale = RADIUS / Math.max(length("m", pair), length("n", pair));
  const update = () => {
    const [asks, answers] = [angle("m", pair, state.m), angle("n", pair, state.n)];
    const between = wrapped(asks - answers);
    picture.replaceChildren(
      draw("circle", { r: RADIUS, class: "rim" }),
      ...hand(angle("m", pair, 0), scale * length("m", pair), "start query"),
      ...hand(angle("n", pair, 0), scale * length("n", pair), "start key"),
      draw("path", { d: arc(answers, between, 0.42 * RADIUS), class: "between" }),
      ...hand(answers, scale * length("n", pair), "key"),
      ...hand(asks, scale * length("m", pair), "query"),
    );
    const found = make("b", { class: "weight" }, degrees(between));
    said.replaceChildren("from key to query ", found, make("br"), `product ${decimal(product(pair, state.m - state.n))}`);
  };
  return { element: make("figure", { class: "clock" }, caption, picture, said), update };
}

// The score against the distance: one curve, whatever the two positions are.
function curve({ last, state, score }) {
  const [width, height, edge] = [250, SIZE, 18];
  const distances = [...Array(2 * last + 1).keys()].map((place) => place - last);
  const scores = distances.map(score);
  const most = Math.max(...scores.map(Math.abs), 1e-9);
  const x = (distance) => edge + ((distance + last) / (2 * last)) * (width - 2 * edge);
  const y = (value) => height / 2 - (value / most) * (height / 2 - edge);
  const path = distances.map((distance, place) => `${place ? "L" : "M"}${x(distance)},${y(scores[place])}`).join("");
  const dot = draw("circle", { r: 6, class: "here" });
  const label = (text, at, anchor) => draw("text", { x: at, y: height - 3, "text-anchor": anchor }, text);
  const picture = draw(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    draw("path", { d: `M${edge},${y(0)}H${width - edge}M${x(0)},${edge / 2}V${height - edge}`, class: "axis" }),
    draw("path", { d: path, class: "scores" }),
    ...distances.map((distance, place) => draw("circle", { cx: x(distance), cy: y(scores[place]), r: 2.2, class: "each" })),
    dot,
    label(`−${last}`, x(-last), "middle"),
    label("0", x(0), "middle"),
    label(`${last}`, x(last), "middle"),
  );
  const caption = make("figcaption", {}, make("b", {}, "score"), make("span", { class: "hint" }, " against m − n"));
  const said = make("div", { class: "said" });
  const update = () => {
    const distance = state.m - state.n;
    dot.setAttribute("cx", x(distance));
    dot.setAttribute("cy", y(score(distance)));
    const found = make("b", { class: "weight total" }, decimal(score(distance)));
    said.replaceChildren(`m − n = ${signed(distance)}`, make("br"), "score ", found);
  };
  return { element: make("figure", { class: "curve" }, caption, picture, said), update };
}

function summary({ tokens, last, state, score }) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const update = () => {
    const distance = state.m - state.n;
    const others = last - Math.abs(distance);
    const same = others ? ` Every other pair with m − n = ${signed(distance)} has the same score.` : "";
    element.replaceChildren(
      make("strong", {}, `“${tokens[state.m]}”`),
      ` at ${state.m} looks at “${tokens[state.n]}” at ${state.n}: the score is ${decimal(score(distance))}.${same}`,
    );
  };
  return { element, update };
}

// ---- geometry: angles count against the clock, as in mathematics; y points down in SVG ----

function hand(angle, length, role) {
  const at = (radius, turn = 0) => `${radius * Math.cos(angle + turn)},${-radius * Math.sin(angle + turn)}`;
  const head = `M${at(length)}L${at(length - 11, 5 / length)}L${at(length - 11, -5 / length)}Z`;
  return [draw("path", { d: `M0,0L${at(length - 9)}`, class: `hand ${role}` }), draw("path", { d: head, class: `head ${role}` })];
}

function arc(from, by, radius) {
  const at = (angle) => `${radius * Math.cos(angle)},${-radius * Math.sin(angle)}`;
  return `M${at(from)}A${radius},${radius} 0 0 ${by > 0 ? 0 : 1} ${at(from + by)}`; // |by| ≤ π: never the long way
}

// The same angle between −π and π.
function wrapped(angle) {
  return Math.atan2(Math.sin(angle), Math.cos(angle));
}

function degrees(angle) {
  return `${signed(Math.round((angle * 180) / Math.PI))}°`;
}

function signed(number) {
  return `${number}`.replace("-", "−");
}

function decimal(number) {
  return number.toFixed(2).replace("-0.00", "0.00").replace("-", "−");
}
