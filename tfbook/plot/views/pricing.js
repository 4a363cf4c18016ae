// Guess the price: one question after the other, and the factor between each guess and its answer.

const FAR = 1000; // a factor that fills the bar

function buildView({ questions }) {
  const state = { guesses: [] };
  const rules = {
    next: () => state.guesses.length,
    over: () => rules.next() >= questions.length,
    factor: (place) => off(state.guesses[place], questions[place].answer),
    mean: () => Math.exp(state.guesses.reduce((sum, _, place) => sum + Math.log(rules.factor(place)), 0) / rules.next()),
  };

  function guess(value) {
    if (!rules.over() && value > 0 && Number.isFinite(value)) state.guesses.push(value);
    for (const part of parts) part.update();
  }

  function restart() {
    state.guesses = [];
    for (const part of parts) part.update();
  }

  const parts = [asked(questions, rules), controls(questions, guess, restart, rules), said(questions, rules)];
  parts.push(scores(questions, state, rules));
  const view = make("section", { class: "view", "aria-label": "Guess the price" });
  view.append(...parts.map((part) => part.element));
  restart();
  return view;
}

function off(guess, answer) {
  return Math.max(guess / answer, answer / guess);
}

// Three significant digits, without an exponent.
function shown(number) {
  return Number(number.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

function times(factor) {
  return factor < 10 ? factor.toFixed(1) : shown(factor);
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function asked(questions, rules) {
  const element = make("p", { class: "question", "aria-live": "polite" });
  const update = () => {
    const place = rules.next();
    const text = rules.over() ? "That was the last one." : questions[place].question;
    element.replaceChildren(make("b", {}, rules.over() ? "" : `${place + 1} of ${questions.length}. `), text);
  };
  return { element, update };
}

function controls(questions, guess, restart, rules) {
  const input = make("input", { type: "number", min: 0, step: "any", autocomplete: "off", "aria-label": "Your guess" });
  const unit = make("span", { class: "unit" });
  const take = () => {
    guess(input.valueAsNumber);
    input.value = "";
  };
  onKeys(input, { Enter: take });
  const see = button("Show the arithmetic", take, { class: "take" });
  const element = make("div", { class: "controls" }, make("label", {}, "Your guess: ", input, " ", unit), see);
  element.append(button("Start again", restart, { class: "again" }));
  const update = () => {
    input.disabled = see.disabled = rules.over();
    unit.textContent = rules.over() ? "" : questions[rules.next()].unit;
  };
  return { element, update };
}

function said(questions, rules) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const update = () => {
    const place = rules.next() - 1;
    if (place < 0) return element.replaceChildren("A factor of 2 is a good guess; a factor of 100 is where the fun is.");
    const { answer, unit, why } = questions[place];
    const right = make("strong", {}, `${shown(answer)} ${unit}`);
    const end = rules.over() ? ` Over all questions you were off by a factor of ${times(rules.mean())}.` : "";
    element.replaceChildren(right, `: ${why}. You were off by a factor of ${times(rules.factor(place))}.${end}`);
  };
  return { element, update };
}

// A row per question that is answered: guess, answer, and the factor as a bar on a logarithmic scale.
function scores(questions, state, rules) {
  const body = make("tbody");
  const heads = ["", "you", "arithmetic", "factor", ""].map((text) => make("th", { scope: "col" }, text));
  const element = make("table", { class: "scores" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const row = (guess, place) => {
    const { question, answer, unit } = questions[place];
    const line = make("span", { class: "line" });
    line.style.width = `${Math.min(100, (100 * Math.log(rules.factor(place))) / Math.log(FAR))}%`;
    const numbers = [`${shown(guess)} ${unit}`, `${shown(answer)} ${unit}`, times(rules.factor(place))];
    const cells = numbers.map((text) => make("td", { class: "number" }, text));
    return make("tr", {}, make("th", { scope: "row" }, question), ...cells, make("td", { class: "track" }, line));
  };
  const update = () => {
    body.replaceChildren(...state.guesses.map(row));
    element.hidden = !state.guesses.length;
  };
  return { element, update };
}
