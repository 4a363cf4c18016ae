// Inside the model: the maps of its heads, the logit lens, and the cache.

// ---- pictures: a canvas with one pixel for each number, which style sheets enlarge ----

const knownColors = new Map(); // emptied when the theme changes

function colorOf(name) {
  if (!knownColors.has(name)) knownColors.set(name, computedColor(name));
  return knownColors.get(name);
}

function computedColor(name) {
  const probe = make("span", { class: "probe" });
  probe.style.color = `var(--${name})`;
  document.querySelector(".view").append(probe);
  const pen = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  pen.fillStyle = getComputedStyle(probe).color;
  pen.fillRect(0, 0, 1, 1);
  probe.remove();
  return pen.getImageData(0, 0, 1, 1).data.slice(0, 3);
}

// `cells` yields [x, y, how strong (0 to 1), color].
function paint(canvas, width, height, cells) {
  [canvas.width, canvas.height] = [Math.max(1, width), Math.max(1, height)];
  const pen = canvas.getContext("2d");
  const picture = pen.createImageData(canvas.width, canvas.height);
  for (const [x, y, strength, color] of cells) {
    const at = 4 * (y * canvas.width + x);
    picture.data.set(color, at);
    picture.data[at + 3] = 255 * strength;
  }
  pen.putImageData(picture, 0, 0);
}

function* mapCells(rows, chosen) {
  const [ink, strong] = [colorOf("weight-color"), colorOf("query")];
  for (const [y, row] of rows.entries()) {
    for (const [x, weight] of row.entries()) {
      const strength = Math.sqrt(weight); // so that faint ones are seen
      yield y === chosen ? [x, y, 0.15 + 0.85 * strength, strong] : [x, y, strength, ink];
    }
  }
}

// ---- heads ----

function heads(session, choose, silence) {
  const { layers, heads: count } = session.model;
  const grid = $("heads");
  grid.style.setProperty("--heads", count);
  const cells = Array.from({ length: layers * count }, (_, i) => cell(Math.floor(i / count), i % count));
  grid.append(...cells.map(({ element }) => element));

  function cell(layer, head) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const element = button("", () => choose(layer, head), { role: "radio" });
    element.append(canvas, make("span", {}, headName(layer, head)));
    const update = () => {
      const isChosen = layer === session.chosen.layer && head === session.chosen.head;
      const isSilent = session.silenced.has(headKey(layer, head));
      const name = `block ${layer + 1}, head ${head + 1}${isSilent ? ", silenced" : ""}`;
      for (const [key, value] of [["aria-checked", isChosen], ["aria-label", name]]) element.setAttribute(key, value);
      element.title = name;
      element.tabIndex = isChosen ? 0 : -1;
      element.classList.toggle("silent", isSilent);
      paint(canvas, session.length, session.length, mapCells(session.reading.weights[layer][head], session.at));
    };
    return { element, update };
  }

  const move = (down, right) => () => {
    const { layer, head } = session.chosen;
    choose(inside(layer + down, layers), inside(head + right, count));
    cells[session.chosen.layer * count + session.chosen.head].element.focus();
  };
  const silenceChosen = () => silence(session.chosen.layer, session.chosen.head);
  onKeys(grid, {
    ArrowUp: move(-1, 0),
    ArrowDown: move(1, 0),
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    s: silenceChosen,
    S: silenceChosen,
  });
  $("silence").addEventListener("click", silenceChosen);
  $("map").addEventListener("click", ({ offsetY }) => {
    choose(session.chosen.layer, session.chosen.head, rowAt(offsetY));
  });
  const rowAt = (y) => inside(Math.floor((y / $("map").clientHeight) * session.length), session.length);

  function update() {
    for (const one of cells) one.update();
    const { layer, head } = session.chosen;
    const isSilent = session.silenced.has(headKey(layer, head));
    $("silence").setAttribute("aria-pressed", isSilent);
    paint($("map"), session.length, session.length, mapCells(session.reading.weights[layer][head], session.at));
    say("looks", ...looks(session), isSilent ? " It is silenced: what it finds goes nowhere." : "");
    const name = `Block ${layer + 1}, head ${head + 1}`;
    $("map").setAttribute("aria-label", `${name}: attention weights of all places. ${$("looks").textContent}`);
    $("map-caption").textContent = `${name}. The chosen place is the blue row; click a row to choose its place.`;
  }
  return { update };
}

function headName(layer, head) {
  return `${layer + 1}.${head + 1}`;
}

// The sentence of where the chosen head looks.
function looks(session) {
  const weights = lookedAt(session);
  if (!weights.length) return [];
  const labels = session.labels();
  const most = ranked(weights).slice(0, 3).filter((place) => weights[place] >= 0.01);
  const parts = most.map((place) => `“${labels[place]}” (place ${place + 1}) ${percent(weights[place])}`);
  const name = `Block ${session.chosen.layer + 1}, head ${session.chosen.head + 1}`;
  return [make("strong", {}, name), ` looks from “${labels[session.at]}” at ${parts.join(", ")}.`];
}

// ---- the logit lens ----

const SAID = 3; // tokens of each layer

// The probabilities of the next token, read off the residual stream before each block and after the last one.
function lensOf(model, reading, place) {
  return reading.stream.map((places) => softmax(model.unembedded(places[place])));
}

function lens(session) {
  const table = $("lens");
  const head = ["", "would say", "", "", "the final token"].map((text) => make("th", { scope: "col" }, text));
  head[1].colSpan = SAID;
  head.splice(2, SAID - 1);
  head[0].replaceWith((head[0] = make("td")));
  table.append(make("thead", {}, make("tr", {}, ...head)), make("tbody"));

  function row(layer, shares, winner) {
    const name = layer ? `after block ${layer}` : "embedding";
    const said = ranked(shares).slice(0, SAID).map((id) => cellOf(session.tokenizer.named(id), shares[id]));
    const end = cellOf(session.tokenizer.named(winner), shares[winner]);
    return make("tr", {}, make("th", { scope: "row" }, name), ...said, end);
  }

  function update() {
    const all = session.length ? lensOf(session.model, session.reading, session.at) : [];
    const winner = all.length && ranked(all.at(-1))[0];
    table.tBodies[0].replaceChildren(...all.map((shares, layer) => row(layer, shares, winner)));
  }
  return { update };
}

function cellOf(name, share) {
  const cell = make("td", { title: `probability ${percent(share)}` }, `${name} `, make("span", {}, percent(share)));
  cell.style.setProperty("--weight", share);
  return cell;
}

// ---- the cache ----

function cache(session) {
  const { layers, heads: count, longest, headWidth, width } = session.model;

  function* cells() {
    const colors = [colorOf("key"), colorOf("value")];
    for (let layer = 0; layer < layers; layer += 1) {
      for (const [kind, vectors] of [session.reading.keys, session.reading.values].entries()) {
        const lengths = vectors[layer].map((vector) => headLengths(vector, headWidth));
        const most = Math.max(...lengths.flat(), 1e-9);
        for (const [x, each] of lengths.entries()) {
          const top = (2 * layer + kind) * (count + 1); // an empty row between keys and values
          for (const [head, one] of each.entries()) yield [x, top + head, 0.2 + (0.8 * one) / most, colors[kind]];
        }
      }
    }
  }

  function update() {
    paint($("cache"), longest, 2 * layers * (count + 1) - 1, cells());
    const numbers = session.length * layers * 2 * width;
    const kilobytes = Math.round((4 * numbers) / 1024).toLocaleString("en");
    const filled = `${session.length} of ${longest} places are filled`;
    const product = `${session.length} × ${layers} blocks × 2 (key and value) × ${width} numbers`;
    $("cache-caption").textContent = `${filled}: ${product} = ${numbers.toLocaleString("en")}, or ${kilobytes} KiB.`;
    $("cache").setAttribute("aria-label", `The cache of keys and values: ${filled}.`);
  }
  return { update };
}

// The length of each head's part of a vector.
function headLengths(vector, headWidth) {
  const lengths = [];
  for (let i = 0; i < vector.length; i += headWidth) lengths.push(Math.sqrt(dot(vector, i, vector, i, headWidth)));
  return lengths;
}
