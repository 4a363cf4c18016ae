// Shannon's game: the reader guesses a text letter by letter, and everybody's surprise is added up.

const ALPHABET = "abcdefghijklmnopqrstuvwxyz ";

function buildView({ text, given, players, guesses }) {
  const state = { typed: "" }; // one guess for each letter after the given ones
  const rules = {
    next: () => given + state.typed.length,
    over: () => rules.next() >= text.length,
    right: () => [...state.typed].filter((guess, place) => guess === text[given + place]).length,
    mean: () => mean(surprises(state.typed, text, given)),
  };

  function guess(letters) {
    for (const letter of letters.toLowerCase()) {
      if (ALPHABET.includes(letter) && !rules.over()) state.typed += letter;
    }
    for (const part of parts) part.update();
  }

  function restart() {
    state.typed = "";
    guess("");
    view.querySelector("input").focus({ preventScroll: true });
  }

  const play = () => guess(guesses.slice(state.typed.length));
  const parts = [
    story(text, given, state, rules),
    controls(guess, play, restart, rules),
    said(text, state, rules),
    scores(given, players, state, rules),
  ];
  const view = make("section", { class: "view", "aria-label": "Guess the next letter" });
  view.append(...parts.map((part) => part.element));
  guess("");
  return view;
}

// The surprise of each letter for a player who only names favorites: when k of the n guesses so far were right, the next
// guess has probability (k + 1) / (n + 2), and the other 26 letters share the rest.
function surprises(typed, text, given) {
  let right = 0;
  return [...typed].map((guess, place) => {
    const trust = (right + 1) / (place + 2);
    const hit = guess === text[given + place];
    right += hit;
    return -Math.log(hit ? trust : (1 - trust) / (ALPHABET.length - 1));
  });
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function visible(letter) {
  return letter === " " ? "␣" : letter;
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function story(text, given, state, rules) {
  const element = make("p", { class: "prose" });
  const shown = (guess, place) => {
    const letter = text[given + place];
    if (guess === letter) return make("b", {}, letter);
    return make("i", { title: `you guessed ${visible(guess)}` }, visible(letter));
  };
  const update = () => {
    const caret = rules.over() ? "" : make("span", { class: "caret" }, "?");
    element.replaceChildren(text.slice(0, given), ...[...state.typed].map(shown), caret);
  };
  return { element, update };
}

function controls(guess, play, restart, rules) {
  const look = { type: "text", size: 2, maxlength: 1, autocomplete: "off", autocapitalize: "none", spellcheck: "false" };
  const input = make("input", { ...look, "aria-label": "Your guess for the next letter or space" });
  input.addEventListener("input", () => {
    guess(input.value);
    input.value = "";
  });
  const label = make("label", {}, "Next letter? ", input);
  const hint = make("span", { class: "hint" }, "Type a letter, or a space where a word ends.");
  const again = button("Start again", restart, { class: "again" });
  const element = make("div", { class: "controls" }, label, button("Let the table play", play, { class: "play" }), again, hint);
  const update = () => (input.disabled = rules.over());
  return { element, update };
}

function said(text, state, rules) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const verdict = () => {
    const [came, guess] = [text[rules.next() - 1], state.typed.at(-1)];
    return came === guess ? `Right, “${visible(came)}”.` : `It was “${visible(came)}”, not “${visible(guess)}”.`;
  };
  const update = () => {
    const count = state.typed.length;
    if (!count) element.textContent = "Your score starts with your first guess.";
    else element.textContent = `${verdict()} ${rules.right()} of ${count} guesses right.`;
  };
  return { element, update };
}

// Nats per letter of everybody over the letters guessed so far, as bars.
function scores(given, players, state, rules) {
  const most = Math.log(ALPHABET.length);
  const row = (name) => {
    const [line, number] = [make("span", { class: "line" }), make("td", { class: "number" })];
    const bar = make("td", { class: "track" }, line);
    return { line, number, element: make("tr", {}, make("th", { scope: "row" }, name), bar, number) };
  };
  const rows = { you: row("you"), ...Object.fromEntries(Object.keys(players).map((name) => [name, row(name)])) };
  const body = make("tbody", {}, ...Object.values(rows).map((one) => one.element));
  const title = make("caption", {}, "Surprise in nats per letter, over the letters guessed so far (shorter is better)");
  const element = make("table", { class: "scores" }, title, body);
  const update = () => {
    const count = state.typed.length;
    const values = { you: rules.mean() };
    for (const [name, all] of Object.entries(players)) values[name] = mean(all.slice(0, count));
    for (const [name, { line, number }] of Object.entries(rows)) {
      number.textContent = count ? values[name].toFixed(2) : "–";
      line.style.width = count ? `${Math.min(100, (100 * values[name]) / (1.25 * most))}%` : "0";
    }
    rows.you.element.classList.add("you");
  };
  return { element, update };
}
