// The attention view: a layer and a head are chosen, and each query's weights are seen as lines and as a matrix.

const BLOCKED = 255; // the byte of a cell that the mask blocks; the others hold hundredths
const FAINTEST = 2; // hundredths from which a weight has a line
const ROW = 30; // pixels: height of a row in the matrix and in the drawing of lines
const REACH = 130; // pixels from the left end of a line to its right end

function buildView(data) {
  const { layers, heads, queries, keys } = data;
  const bytes = bytesOf(data.cells);
  const state = { layer: 0, head: heads.length - 1, query: queries.length >> 1 }; // a token with a past to look at
  const size = queries.length * keys.length;
  const weights = {
    map: (layer, head) => bytes.subarray((layer * heads.length + head) * size).subarray(0, size),
    row: (query) => weights.map(state.layer, state.head).subarray(query * keys.length, (query + 1) * keys.length),
  };

  function choose(change) {
    const next = { ...state, ...change };
    state.layer = inside(next.layer, layers.length);
    state.head = inside(next.head, heads.length);
    state.query = inside(next.query, queries.length);
    for (const part of parts) part.update();
  }

  const parts = [
    controls(data, state, choose),
    overview(data, state, weights, choose),
    lines(data, state, weights, choose),
    matrix(data, state, weights, choose),
    summary(data, state, weights),
  ];
  const [top, small, drawing, table, text] = parts.map((part) => part.element);
  const main = make("div", { class: "main" }, drawing, table);
  const view = make("section", { class: "view", "aria-label": "Attention view" }, top, text, main, small);
  view.style.setProperty("--longest", longest(keys));
  const focus = () => view.querySelector(".chosen button").focus({ preventScroll: true });
  const step = (name, by) => () => {
    choose({ [name]: state[name] + by });
    focus();
  };
  main.addEventListener("click", focus);
  small.addEventListener("click", focus);
  onKeys(main, {
    ArrowUp: step("query", -1),
    ArrowDown: step("query", 1),
    Home: step("query", -Infinity),
    End: step("query", Infinity),
    ArrowLeft: step("head", -1),
    ArrowRight: step("head", 1),
  });
  choose({});
  return view;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls({ layers, heads }, state, choose) {
  const layer = make("select", { class: "layer" }, ...layers.map((name) => new Option(name)));
  const head = make("select", { class: "head" }, ...heads.map((name) => new Option(name)));
  layer.addEventListener("change", () => choose({ layer: layer.selectedIndex }));
  head.addEventListener("change", () => choose({ head: head.selectedIndex }));
  const keys = make("span", { class: "hint" }, "On a token: ↑ ↓ move to another, ← → change the head");
  const element = make("div", { class: "controls" });
  element.append(make("label", {}, "Layer ", layer), make("label", {}, "Head ", head), keys);
  const update = () => {
    layer.selectedIndex = state.layer;
    head.selectedIndex = state.head;
  };
  return { element, update };
}

function summary({ layers, heads, queries, keys }, state, weights) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const update = () => {
    const mean = heads.length > 1 && state.head === heads.length - 1;
    const where = `Layer ${layers[state.layer]}, ${mean ? "mean of the heads" : `head ${heads[state.head]}`}: `;
    const row = [...weights.row(state.query)].map((byte, key) => ({ byte, key }));
    const seen = row.filter(({ byte }) => byte > 0 && byte !== BLOCKED);
    seen.sort((a, b) => b.byte - a.byte || a.key - b.key);
    const most = seen.slice(0, 3).map(({ byte, key }) => `“${keys[key]}” ${number(byte)}`);
    const said = most.length ? `attends most to ${most.join(", ")}` : "attends to nothing";
    const token = make("strong", {}, `“${queries[state.query]}”`);
    element.replaceChildren(where, token, ` ${said}.`);
  };
  return { element, update };
}

function matrix({ queries, keys }, state, weights, choose) {
  const buttons = queries.map((query) => make("button", { type: "button", title: query }, shorten(query)));
  const cells = queries.map((query) => keys.map((key) => make("td", { title: `${query} → ${key}` })));
  const rows = queries.map((_, query) =>
    make("tr", {}, make("th", { scope: "row" }, buttons[query]), ...cells[query]),
  );
  const corner = make("td", { class: "corner" }, "query ↓ key →");
  rows.forEach((row, query) => row.addEventListener("click", () => choose({ query })));

  const update = () => {
    rows.forEach((element, query) => {
      const chosen = query === state.query;
      element.classList.toggle("chosen", chosen);
      buttons[query].setAttribute("aria-pressed", chosen);
      buttons[query].tabIndex = chosen ? 0 : -1;
      const row = weights.row(query);
      cells[query].forEach((cell, key) => paint(cell, row[key]));
    });
  };
  return { element: matrixOf(keys, corner, rows, longest(keys) > 4), update };
}

function paint(cell, byte) {
  const blocked = byte === BLOCKED;
  cell.className = blocked ? "blocked" : "";
  cell.textContent = blocked ? "–" : number(byte);
  cell.style.setProperty("--weight", blocked ? 0 : byte / 100);
}

function lines({ queries, keys }, state, weights, choose) {
  const most = Math.max(queries.length, keys.length);
  const y = (place, side) => ROW * (place + (most - side.length) / 2 + 1.5);
  const room = (tokens) => 12 + 8 * Math.max(5, ...tokens.map((token) => shorten(token).length)); // 5 for "query"
  const left = room(queries);
  const right = left + REACH;
  const width = right + 38 + room(keys);
  const element = draw("svg", { class: "lines", width, height: ROW * (most + 1), "aria-hidden": "true" });
  const curves = draw("g", { fill: "none" });
  const label = (x, y, text, look = {}) => draw("text", { x, y, ...look }, text);
  const names = queries.map((query, i) => label(left - 8, y(i, queries), shorten(query), { class: "query" }));
  names.forEach((name, query) => name.addEventListener("click", () => choose({ query })));
  const numbers = keys.map((_, key) => label(right + 8, y(key, keys), "", { class: "number" }));
  const tokens = keys.map((key, i) => label(right + 46, y(i, keys), shorten(key)));
  const titles = [label(left - 8, ROW / 2, "query", { class: "query title" })];
  titles.push(label(right + 46, ROW / 2, "key", { class: "key title" }));
  element.append(curves, ...titles, ...names, ...numbers, ...tokens);

  const curve = (query, key, byte) => {
    const [start, end, middle] = [y(query, queries), y(key, keys), (left + right) / 2];
    const path = draw("path", { d: `M${left},${start} C${middle},${start} ${middle},${end} ${right},${end}` });
    path.style.setProperty("--weight", byte / 100);
    path.classList.toggle("chosen", query === state.query);
    return path;
  };
  const update = () => {
    const order = [...queries.keys()].sort((a, b) => (a === state.query) - (b === state.query)); // the chosen on top
    const ends = order.flatMap((query) => [...weights.row(query)].map((byte, key) => [query, key, byte]));
    const seen = ends.filter(([, , byte]) => byte !== BLOCKED && byte >= FAINTEST);
    curves.replaceChildren(...seen.map((end) => curve(...end)));
    names.forEach((name, query) => name.classList.toggle("chosen", query === state.query));
    weights.row(state.query).forEach((byte, key) => {
      numbers[key].textContent = byte === BLOCKED ? "–" : number(byte);
      tokens[key].classList.toggle("blocked", byte === BLOCKED);
    });
  };
  return { element, update };
}

function overview({ layers, heads, queries, keys }, state, weights, choose) {
  const element = make("div", { class: "overview", "aria-hidden": "true" });
  if (layers.length * heads.length === 1) return { element, update: () => {} };
  const thumbs = layers.map((_, layer) => heads.map((_, head) => thumb(layer, head)));

  function thumb(layer, head) {
    const canvas = make("canvas", { width: keys.length, height: queries.length });
    const image = new ImageData(keys.length, queries.length);
    weights.map(layer, head).forEach((byte, cell) => {
      image.data.set(byte === BLOCKED ? [128, 128, 128, 70] : [160, 60, 148, 2.55 * byte], 4 * cell);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.title = `layer ${layers[layer]}, head ${heads[head]}`;
    canvas.addEventListener("click", () => choose({ layer, head }));
    return canvas;
  }

  const table = make("table");
  table.append(make("tr", {}, make("th"), ...heads.map((head) => make("th", {}, head))));
  thumbs.forEach((row, layer) => {
    const cells = row.map((canvas) => make("td", {}, canvas));
    table.append(make("tr", {}, make("th", {}, layers[layer]), ...cells));
  });
  const lead = "Every head at a glance: layers downwards, heads across. Click one to choose it.";
  element.append(make("p", {}, lead), table);
  const update = () => {
    thumbs.forEach((row, layer) =>
      row.forEach((canvas, head) => canvas.classList.toggle("chosen", layer === state.layer && head === state.head)),
    );
  };
  return { element, update };
}

function number(byte) {
  return (byte / 100).toFixed(2);
}
