// The next-token explorer: a text and its likeliest next tokens as bars; the reader chooses one, and the text goes on.

const HIDDEN = 0.0005; // share up to which there is no bar for everything else: it may be what rounding left
const STARTLING = 5; // nats of surprise from which a token in the text has its full color

// `bars` is a tree: [piece, surprise in thousandths, the bars behind it]. No bars behind it: the text is complete; no
// third entry: the tree ends.
function buildView({ start, pieces, spaces, bars }) {
  const state = { path: [], at: 0 }; // the tokens chosen, and the bar that arrow keys have reached
  const random = generator(1);
  const names = pieces.map((piece) => named(piece, spaces));
  const token = ([piece, surprise, behind], place) => {
    const nats = surprise / 1000;
    return { piece: pieces[piece], name: names[piece], nats, share: Math.exp(-nats), behind, place };
  };
  const next = () => (state.path.length ? state.path.at(-1).behind : bars)?.map(token);

  function append(chosen) {
    if (!chosen) return;
    state.path.push(chosen);
    state.at = 0;
    update();
  }

  function back() {
    state.at = state.path.pop()?.place ?? state.at; // Enter would choose the same again
    update();
  }

  function restart() {
    Object.assign(state, { path: [], at: 0 });
    update();
  }

  function sample() {
    const tokens = next() ?? [];
    let left = random() * tokens.reduce((sum, { share }) => sum + share, 0);
    append(tokens.find(({ share }) => (left -= share) < 0) ?? tokens[0]);
  }

  const list = choices(bars.length, (place) => byHand(() => append(next()?.[place]))());
  const parts = [controls(bars.length, state, { back, restart, sample }), prose(start, state), list, ledger(state)];
  const view = make("section", { class: "view", "aria-label": "Next-token explorer" });
  view.append(...parts.map((part) => part.element));

  function update() {
    const tokens = next();
    for (const part of parts) part.update(tokens, state.at);
  }

  // After a change by key or on a bar, keys act on the bars; where there are none, Enter goes back.
  function byHand(change) {
    return () => {
      change();
      (list.focusable() ?? view.querySelector(".back")).focus({ preventScroll: true });
    };
  }

  const move = (to) =>
    byHand(() => {
      state.at = inside(to(), next()?.length || 1);
      update();
    });
  const digits = bars.map((_, place) => [String(place + 1), byHand(() => append(next()?.[place]))]);
  onKeys(view, {
    ...Object.fromEntries(digits),
    ArrowUp: move(() => state.at - 1),
    ArrowDown: move(() => state.at + 1),
    Home: move(() => 0),
    End: move(() => Infinity),
    Backspace: byHand(back),
  });
  view.addEventListener("click", ({ target }) => target.closest("button") ?? byHand(() => {})());
  update();
  return view;
}

// A piece as a bar names it: without the space before a word unless `spaces`; blanks are always seen.
function named(piece, spaces) {
  return spaces || !piece.trim() ? piece.replaceAll(" ", "␣").replaceAll("\n", "↵") : piece.trim();
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function controls(most, state, { back, restart, sample }) {
  const goBack = button("← back", back, { class: "back" });
  const again = button("start again", restart, { class: "restart" });
  const draw = button("sample", sample, { class: "sample", title: "draws one of the tokens below by their probabilities" });
  const keys = `1 to ${most}, or ↑ ↓ and Enter, choose a token; Backspace goes back`;
  const buttons = make("span", { class: "buttons" }, goBack, again, draw);
  const element = make("div", { class: "controls" }, buttons, make("span", { class: "hint" }, keys));
  const update = (tokens) => {
    for (const one of [goBack, again]) one.setAttribute("aria-disabled", !state.path.length);
    draw.setAttribute("aria-disabled", !tokens?.length);
  };
  return { element, update };
}

// The text as prose: what was chosen has a color, the stronger the more surprising it was.
function prose(start, state) {
  const element = make("p", { class: "prose" });
  const update = () => {
    const chosen = state.path.flatMap(({ piece, share, nats }) => {
      const [, gap, word] = /^(\s*)(.*)$/s.exec(piece);
      const title = `probability ${percent(share)}, surprise ${nats.toFixed(2)} nats`;
      const mark = make("mark", { title }, word || piece.replaceAll("\n", "↵\n"));
      mark.style.setProperty("--strength", Math.min(1, nats / STARTLING));
      return word ? [gap, mark] : [mark];
    });
    element.replaceChildren(start, ...chosen, make("span", { class: "caret", "aria-hidden": "true" }));
  };
  return { element, update };
}

function choices(most, choose) {
  const rows = Array.from({ length: most }, (_, place) => bar(place + 1, () => choose(place)));
  const rest = bar("");
  rest.element.className = "rest";
  const list = make("ol", { class: "bars" }, ...rows.map((row) => row.element), rest.element);
  const end = make("p", { class: "end" });
  const element = make("div", { class: "choices" }, list, end);
  element.style.setProperty("--rows", most + 1);

  function bar(key, click) {
    const [name, line, share] = ["name", "line", "share"].map((kind) => make("span", { class: kind }));
    const cells = [make("kbd", { "aria-hidden": "true" }, key), name, make("span", { class: "track" }, line), share];
    const row = click ? button("", click, { "aria-keyshortcuts": key }) : make("div");
    row.append(...cells);
    const show = (token) => {
      element.hidden = !token;
      if (!token) return;
      name.textContent = shorten(token.name);
      share.textContent = percent(token.share);
      line.style.width = `${100 * token.share}%`;
    };
    const element = make("li", {}, row);
    return { element, row, show };
  }

  const update = (tokens, at) => {
    rows.forEach(({ row, show }, place) => {
      show(tokens?.[place]);
      row.tabIndex = place === at ? 0 : -1;
      row.title = tokens?.[place]?.name ?? "";
    });
    const left = 1 - (tokens ?? []).reduce((sum, { share }) => sum + share, 0);
    rest.show(tokens?.length && left > HIDDEN && { name: "", share: left });
    rest.row.querySelector(".name").textContent = "everything else";
    end.replaceChildren(...said(tokens));
  };
  const focusable = () => rows.find(({ element, row }) => !element.hidden && row.tabIndex === 0)?.row;
  return { element, update, focusable };
}

// What is said instead of bars.
function said(tokens) {
  if (tokens?.length) return [];
  if (tokens) return [make("strong", {}, "The text is complete."), " Go back for another token, or start again."];
  const why = " Only the likeliest texts were worked out in advance: go back for another token, or start again.";
  return [make("strong", {}, "The tree ends here."), why];
}

// What the model thought of the last token, and the surprise of all as a sum.
function ledger(state) {
  const text = make("p", { class: "summary", "aria-live": "polite" });
  const sum = make("p", { class: "sum" });
  const element = make("div", { class: "ledger" }, text, sum);
  const update = (tokens) => {
    const last = state.path.at(-1);
    const told = last ?? tokens[0];
    const word = make("strong", {}, `“${told.name}”`);
    const found = [word, ` had probability ${percent(told.share)}, so its surprise −ln p is ${told.nats.toFixed(2)} nats.`];
    text.replaceChildren(...(last ? found : ["Likeliest next: ", word, `, ${percent(told.share)}. What would you write?`]));
    const hundredths = state.path.map(({ nats }) => Math.round(100 * nats)); // what is shown adds up
    const total = hundredths.reduce((all, one) => all + one, 0) / 100;
    const terms = state.path.flatMap(({ name }, i) => [
      i ? " + " : "Surprise: ",
      make("span", { class: "term" }, `${shorten(name)} `, make("b", {}, (hundredths[i] / 100).toFixed(2))),
    ]);
    const mean = (total / hundredths.length).toFixed(2);
    const result = [" = ", make("b", { class: "total" }, `${total.toFixed(2)} nats`), `, ${mean} per token`];
    sum.replaceChildren(...(terms.length ? [...terms, ...result] : []));
  };
  return { element, update };
}
