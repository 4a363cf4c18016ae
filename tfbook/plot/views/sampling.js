// The sampler: temperature, then top-k, then top-p; what is left is normalized, shown as bars, and sampled from.

const BARS = 14; // tokens shown, the likeliest
const MOST_K = 30; // the slider's step behind it means all tokens
const AS_IT_IS = { temperature: 1, k: MOST_K + 1, p: 1 };

function buildView({ contexts, tokens, logits }) {
  const state = { context: 0, ...AS_IT_IS, counts: new Map(), drawn: null };
  const random = generator(1);
  const orders = logits.map((row) => row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b));
  const shares = (settings) => filtered(logits[state.context], orders[state.context], settings);

  function choose(change) {
    Object.assign(state, { counts: new Map(), drawn: null }, change); // counts belong to one distribution
    update();
  }

  function sample(times) {
    const now = shares(state);
    for (let i = 0; i < times; i += 1) {
      state.drawn = drawFrom(now, orders[state.context], random());
      state.counts.set(state.drawn, (state.counts.get(state.drawn) ?? 0) + 1);
    }
    update();
  }

  const parts = [controls(contexts, state, choose), bars(tokens, state), samples(tokens, state, sample)];
  const update = () => {
    const [now, before] = [shares(state), shares(AS_IT_IS)];
    for (const part of parts) part.update(now, orders[state.context], before);
  };
  const [top, chart, foot] = parts.map((part) => part.element);
  const view = make("section", { class: "view", "aria-label": "Sampler" }, top, chart, foot);
  view.style.setProperty("--longest", longest(tokens));
  update();
  return view;
}

// Probabilities by token, 0 for what a filter removed.
function filtered(row, order, { temperature, k, p }) {
  const most = row[order[0]];
  const shares = row.map(() => 0);
  const kept = order.slice(0, k > MOST_K ? order.length : k);
  for (const token of kept) shares[token] = Math.exp((row[token] - most) / temperature);
  const total = kept.reduce((sum, token) => sum + shares[token], 0);
  let before = 0;
  let left = 0;
  for (const token of kept) {
    const share = shares[token] / total;
    shares[token] = p < 1 && before >= p - 1e-6 ? 0 : share;
    before += share;
    left += shares[token];
  }
  return shares.map((share) => share / left);
}

// The token in whose part of the line from 0 to 1 the number falls.
function drawFrom(shares, order, number) {
  let sum = 0;
  let last = order[0];
  for (const token of order) {
    if (!shares[token]) continue;
    sum += shares[token];
    last = token;
    if (number < sum) break;
  }
  return last;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(contexts, state, choose) {
  const context = make("select", { class: "context", "aria-label": "text so far" });
  contexts.forEach((name, place) => context.append(make("option", { value: place }, `${name} …`)));
  context.addEventListener("change", () => choose({ context: Number(context.value) }));
  const sliders = [
    slider("temperature", { min: 0.1, max: 2, step: 0.1 }, (value) => value.toFixed(1)),
    slider("k", { min: 1, max: MOST_K + 1, step: 1 }, (value) => (value > MOST_K ? "all" : String(value))),
    slider("p", { min: 0.05, max: 1, step: 0.05 }, (value) => value.toFixed(2)),
  ];
  const names = { temperature: "temperature", k: "top-k", p: "top-p" };
  function slider(name, range, text) {
    const input = make("input", { type: "range", class: name, ...range });
    const output = make("output", { class: `${name}-value` });
    input.addEventListener("input", () => choose({ [name]: Number(input.value) }));
    const show = () => {
      input.value = state[name];
      output.textContent = text(state[name]);
      input.setAttribute("aria-valuetext", text(state[name]));
    };
    return { name, element: () => make("label", {}, `${names[name]} `, input, output), show };
  }
  const reset = button("as it is", () => choose(AS_IT_IS), { class: "reset" });
  const element = make("div", { class: "controls" }, context, ...sliders.map((one) => one.element()), reset);
  const update = () => {
    context.value = state.context;
    for (const one of sliders) one.show();
  };
  return { element, update };
}

function bars(tokens, state) {
  const rows = Array.from({ length: Math.min(BARS, tokens.length) }, bar);
  const rest = bar();
  const others = tokens.length - rows.length;
  if (others) rows.push(rest);
  const body = make("tbody", {}, ...rows.map((row) => row.element));
  const titles = ["next token", "probability", "", "sampled"].map((name) => make("th", { scope: "col" }, name));
  const head = make("tr", {}, ...titles);
  const element = make("table", { class: "bars" }, make("thead", {}, head), body);

  function bar() {
    const name = make("th", { scope: "row" });
    const [number, count] = ["number", "count"].map((kind) => make("td", { class: kind }));
    const [before, now, tick] = ["before", "now", "tick"].map((kind) => make("div", { class: kind }));
    const line = make("td", { class: "line" }, make("div", { class: "track" }, before, now, tick));
    const row = make("tr", {}, name, number, line, count);
    const show = (text, was, share, times, all) => {
      name.textContent = text;
      number.textContent = share ? percent(share) : "0";
      before.style.width = `${100 * was}%`;
      now.style.width = `${100 * share}%`;
      tick.hidden = !times;
      tick.style.left = `${all ? (100 * times) / all : 0}%`;
      count.textContent = times || "";
      row.classList.toggle("removed", !share);
    };
    return { element: row, show };
  }

  const update = (shares, order, original) => {
    const all = [...state.counts.values()].reduce((sum, times) => sum + times, 0);
    const sum = (list, values) => list.reduce((total, token) => total + values(token), 0);
    const places = rows.length - (others ? 1 : 0);
    for (let i = 0; i < rows.length; i += 1) {
      const list = i < places ? [order[i]] : order.slice(places);
      const text = i < places ? shorten(tokens[order[i]]) : `${others} others`;
      const times = sum(list, (token) => state.counts.get(token) ?? 0);
      rows[i].show(text, sum(list, (token) => original[token]), sum(list, (token) => shares[token]), times, all);
      rows[i].element.classList.toggle("drawn", list.includes(state.drawn));
    }
  };
  return { element, update };
}

function samples(tokens, state, sample) {
  const one = button("sample a token", () => sample(1), { class: "one" });
  const many = button("sample 200", () => sample(200), { class: "many" });
  const text = make("p", { class: "summary", "aria-live": "polite" });
  const hint = make("span", { class: "hint" }, "Gray: before the filters. The mark on a bar: its share among the samples.");
  const element = make("div", { class: "foot" }, make("div", { class: "controls" }, one, many, hint), text);
  const update = (shares, order) => {
    const left = shares.filter((share) => share > 0).length;
    const kept = `${left} of ${tokens.length} tokens ${left === 1 ? "is" : "are"} left`;
    const said = `${kept}; the likeliest has ${percent(shares[order[0]])}.`;
    const drawn = state.drawn === null ? [] : [" Sampled: ", make("strong", {}, `“${tokens[state.drawn]}”`), "."];
    text.replaceChildren(said, ...drawn);
  };
  return { element, update };
}
