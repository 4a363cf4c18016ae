// Beat the training: the reader sets W_Q and W_K, attention mixes the colors, and two scenes are painted with the result.

const LEVELS = [
  { name: "inside: one head", parts: ["inside"], heads: 1 },
  { name: "inside and rim: one head", parts: ["inside", "rim"], heads: 1 },
  { name: "inside and rim: two heads", parts: ["inside", "rim"], heads: 2 },
];
const STEPS = 30; // of training
const RATE = 0.1;
const LARGEST = 9; // number that can be set

function buildView({ tokens, features, scenes, width, near }) {
  const blank = () => features.map(() => Array(width).fill(0));
  const zeros = () => [0, 1].map(() => ({ W_Q: blank(), W_K: blank() }));
  const state = { level: 0, heads: zeros(), trained: null };
  const game = {
    get level() {
      return LEVELS[state.level];
    },
    weights: (head, scene) => weights(head, scene.x, width),
    paint: (heads, scene, part) => mixed(weights(heads[part === "rim" ? game.level.heads - 1 : 0], scene.x, width), scene),
    target: (scene, token, part) => scene.colors[part === "rim" ? 3 - token : token - 2], // tokens 2 and 3 are gray
    distance: (color, target) => Math.hypot(...color.map((part, i) => part - target[i])),
    isRight: (color, target) => game.distance(color, target) < near,
    judge: (heads) => judged(heads, scenes, game),
  };
  function change(more) {
    Object.assign(state, more);
    for (const part of parts) part.update();
  }
  const parts = [
    controls(state, game, zeros, change),
    headPanels(tokens, features, scenes, state, game, change),
    paintings(tokens, scenes, state, game),
    summary(state, game),
  ];
  const [top, ...rest] = parts.map(({ element }) => element);
  const view = make("section", { class: "view", "aria-label": "Beat the training" }, top, ...rest);
  change({});
  return view;
}

// ---- attention ----

function product(rows, matrix) {
  return rows.map((row) => matrix[0].map((_, column) => row.reduce((sum, x, i) => sum + x * matrix[i][column], 0)));
}

// softmax(Q Kᵀ / √width): a row for each query.
function weights({ W_Q, W_K }, x, width) {
  const [queries, keys] = [product(x, W_Q), product(x, W_K)];
  return queries.map((q) => {
    const scores = keys.map((k) => q.reduce((sum, number, i) => sum + number * k[i], 0) / Math.sqrt(width));
    const most = Math.max(...scores);
    const shares = scores.map((score) => Math.exp(score - most));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares.map((share) => share / total);
  });
}

function mixed(rows, scene) {
  return product(rows, scene.colors);
}

// How many parts of the gray shapes are near their color, and the mean squared error of all of them.
function judged(heads, scenes, game) {
  const distances = scenes.flatMap((scene) =>
    game.level.parts.flatMap((part) => {
      const painted = game.paint(heads, scene, part);
      return [2, 3].map((token) => [painted[token], game.target(scene, token, part)]);
    }),
  );
  const squares = distances.map(([color, target]) => game.distance(color, target) ** 2);
  const right = distances.filter(([color, target]) => game.isRight(color, target)).length;
  return { right, of: squares.length, error: squares.reduce((sum, square) => sum + square, 0) / (3 * squares.length) };
}

// Adam on all numbers, from small random ones; each slope is measured by moving the number a little both ways.
function trained(start, game) {
  const random = generator(1);
  const heads = start.map((head) => mapped(head, () => random() - 0.5));
  const rows = heads.slice(0, game.level.heads).flatMap(({ W_Q, W_K }) => [...W_Q, ...W_K]);
  const places = rows.flatMap((row) => row.map((_, i) => ({ row, i, mean: 0, square: 0 })));
  for (let step = 1; step <= STEPS; step++) {
    const slopes = places.map(({ row, i }) => {
      const kept = row[i];
      const at = (number) => ((row[i] = number), game.judge(heads).error);
      const slope = (at(kept + 1e-4) - at(kept - 1e-4)) / 2e-4;
      row[i] = kept;
      return slope;
    });
    places.forEach((place, number) => {
      place.mean = 0.9 * place.mean + 0.1 * slopes[number];
      place.square = 0.99 * place.square + 0.01 * slopes[number] ** 2;
      const [mean, square] = [place.mean / (1 - 0.9 ** step), place.square / (1 - 0.99 ** step)];
      place.row[place.i] -= (RATE * mean) / (Math.sqrt(square) + 1e-8);
    });
  }
  return heads;
}

function mapped(head, change) {
  const each = (matrix) => matrix.map((row) => row.map(change));
  return { W_Q: each(head.W_Q), W_K: each(head.W_K) };
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(state, game, zeros, change) {
  const level = make("select", { class: "level", "aria-label": "paint" });
  LEVELS.forEach(({ name }, index) => level.append(make("option", { value: index }, name)));
  level.addEventListener("change", () => change({ level: Number(level.value), trained: null }));
  const train = button("Let training try", () => change({ trained: trained(zeros(), game) }), { class: "train" });
  const take = button("Take its numbers", () => change({ heads: structuredClone(state.trained) }), { class: "take" });
  const clear = button("All zeros", () => change({ heads: zeros() }), { class: "clear" });
  const element = make("div", { class: "controls" }, make("label", {}, "paint ", level), train, take, clear);
  const update = () => {
    level.value = state.level;
    take.disabled = !state.trained;
  };
  return { element, update };
}

function headPanels(tokens, features, scenes, state, game, change) {
  const panels = [0, 1].map((head) => headPanel(head, tokens, features, scenes[0], state, game, change));
  const element = make("div", { class: "heads" }, ...panels.map((panel) => panel.element));
  return { element, update: () => panels.forEach((panel) => panel.update()) };
}

function headPanel(number, tokens, features, scene, state, game, change) {
  const names = ["W_Q", "W_K"];
  const grids = names.map((name) => numbers(name, number, features, state, change));
  const cells = tokens.map(() => tokens.map(() => make("td")));
  const rows = tokens.map((token, i) => make("tr", {}, make("th", { scope: "row" }, tilesOf(token, i, scene)), ...cells[i]));
  const head = make("tr", {}, make("td"), ...tokens.map((token, i) => make("th", { scope: "col" }, tilesOf(token, i, scene))));
  const table = make("table", { "aria-label": `weights of head ${number + 1}` }, make("thead", {}, head), make("tbody", {}, ...rows));
  const caption = make("figcaption", {}, make("b", {}, "weights"), make("span", { class: "hint" }, `in scene 1: ${scene.name}`));
  const map = make("figure", {}, caption, make("div", { class: "matrix" }, table));
  const title = make("h4");
  const element = make("div", { class: "head" }, title, make("div", { class: "row" }, ...grids.map((grid) => grid.element), map));
  const update = () => {
    element.hidden = number >= game.level.heads;
    title.textContent = game.level.heads === 2 ? `Head ${number + 1} paints the ${["inside", "rim"][number]}` : `The head paints ${game.level.parts.join(" and ")}`;
    grids.forEach((grid) => grid.update());
    game.weights(state.heads[number], scene).forEach((row, i) =>
      row.forEach((weight, j) => {
        cells[i][j].textContent = weight.toFixed(2);
        cells[i][j].style.setProperty("--weight", weight);
      }),
    );
  };
  return { element, update };
}

// A token as a name: its sign, in its color where it has one.
function tilesOf(token, place, scene) {
  const sign = ["●", "▲", "●?", "▲?"][place];
  return make("span", { title: place < 2 ? `${sign} of scene 1` : token, class: "sign" }, sign);
}

// A matrix whose numbers can be changed: a row for each feature of a token, a column for each number of query or key.
function numbers(name, head, features, state, change) {
  const inputs = features.map((feature, row) =>
    state.heads[head][name][row].map((_, column) => {
      const label = `${name}, ${feature}, column ${column + 1}, head ${head + 1}`;
      const input = make("input", { type: "number", min: -LARGEST, max: LARGEST, step: 1, "aria-label": label });
      input.addEventListener("input", () => {
        const number = Math.max(-LARGEST, Math.min(LARGEST, Number(input.value)));
        state.heads[head][name][row][column] = number;
        change({});
      });
      return input;
    }),
  );
  const rows = features.map((feature, row) =>
    make("tr", {}, make("th", { scope: "row" }, feature), ...inputs[row].map((input) => make("td", {}, input))),
  );
  const [letter, index] = name.split("_");
  const caption = make("figcaption", {}, make("b", { class: index }, letter, make("sub", {}, index)));
  const hint = make("span", { class: "hint" }, index === "Q" ? "what a token asks for" : "what it is found by");
  caption.append(hint);
  const element = make("figure", {}, caption, make("table", { class: "numbers" }, make("tbody", {}, ...rows)));
  const update = () => {
    inputs.forEach((row, i) =>
      row.forEach((input, j) => {
        const number = state.heads[head][name][i][j];
        const typing = input.getRootNode().activeElement === input;
        if (!typing || Number(input.value) !== number) input.value = Math.round(10 * number) / 10;
      }),
    );
  };
  return { element, update };
}

// ---- what is painted ----

const SHAPES = [
  () => draw("circle", { cx: 26, cy: 26, r: 18 }),
  () => draw("polygon", { points: "26,6 46,42 6,42" }),
];

function paintings(tokens, scenes, state, game) {
  const rows = scenes.map((scene, number) => painting(tokens, scene, number, state, game));
  const element = make("div", { class: "paintings" }, ...rows.map((row) => row.element));
  return { element, update: () => rows.forEach((row) => row.update()) };
}

function painting(tokens, scene, number, state, game) {
  const shapes = tokens.map((_, place) => SHAPES[place % 2]());
  const seen = shapes.map((shape, place) => {
    const says = make("span", { class: "mark" });
    const picture = draw("svg", { viewBox: "0 0 52 52", width: 52, height: 52, role: "img" }, shape);
    return { place, shape, picture, says, element: make("div", { class: "token" }, picture, says) };
  });
  const caption = make("figcaption", {}, make("b", {}, `Scene ${number + 1}`), make("span", { class: "hint" }, scene.name));
  const element = make("figure", { class: "scene" }, caption, make("div", { class: "row" }, ...seen.map((one) => one.element)));
  const update = () => {
    const { parts } = game.level;
    const painted = Object.fromEntries(parts.map((part) => [part, game.paint(state.heads, scene, part)]));
    for (const { place, shape, picture, says } of seen) {
      const gray = place > 1;
      const inside = gray ? painted.inside[place] : scene.colors[place];
      const rim = gray && painted.rim ? painted.rim[place] : null;
      shape.setAttribute("fill", css(inside));
      shape.setAttribute("class", rim ? "rimmed" : "");
      shape.setAttribute("stroke", rim ? css(rim) : "currentColor");
      const right = gray ? parts.filter((part) => game.isRight(painted[part][place], game.target(scene, place, part))) : [];
      const marks = gray ? right.map((part) => `${part} ✓`) : ["given"];
      says.replaceChildren(...(marks.length ? marks : ["not yet"]).map((mark) => make("span", {}, mark)));
      picture.setAttribute("aria-label", `${tokens[place]} of scene ${number + 1}: ${marks.join(", ") || "not yet"}`);
    }
  };
  return { element, update };
}

function css(color) {
  return `rgb(${color.map((part) => Math.round(255 * Math.min(Math.max(part, 0), 1))).join(" ")})`;
}

function summary(state, game) {
  const element = make("p", { class: "summary", role: "status" });
  const said = (name, { right, of, error }) => [make("strong", {}, name), ` ${right} of ${of} right, error ${error.toFixed(4)}. `];
  const update = () => {
    const yours = game.judge(state.heads);
    element.replaceChildren(...said("You:", yours));
    if (!state.trained) return;
    const its = game.judge(state.trained);
    element.append(...said(`Training, ${STEPS} steps:`, its));
    element.append(outcome(yours.error - its.error));
  };
  return { element, update };
}

function outcome(difference) {
  if (Math.abs(difference) < 5e-5) return "It is a tie."; // as far as the digits show
  return difference < 0 ? "Your error is smaller: you beat the training." : "Its error is smaller.";
}
