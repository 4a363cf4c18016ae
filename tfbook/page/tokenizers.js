// Text to token ids and back, as tfbook does it; tests compare them. Each has encode(text), which throws an Error for a
// text that cannot be read, pieces(ids), the text that each token adds, and named(id), a token as a bar names it.

function tokenizerOf(vocabulary) {
  const kinds = { words: WordTokenizer, characters: CharacterTokenizer, bytes: BytePairTokenizer };
  return new kinds[vocabulary.kind](vocabulary);
}

// Blanks are made visible where a token is named on its own.
function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

// ---- words of the story world: tfbook.data.stories.words_of and written ----

const NO_SPACE_BEFORE = new Set([..."”.,:!?"]);
const SENTENCE_ENDS = new Set([...".!?"]);

class WordTokenizer {
  constructor({ tokens, bos, eos, unknown, capitalized, speech }) {
    Object.assign(this, { tokens, bos, eos, unknown });
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.capitalized = new Set(capitalized);
    this.speech = new Set(speech); // "said" after a quotation goes on with its sentence
  }

  wordsOf(text) {
    const words = text.match(/[A-Za-z]+|[“”.,:!?]/g) ?? [];
    return words.map((word) => (this.capitalized.has(word) ? word : word.toLowerCase()));
  }

  encode(text) {
    return [this.bos, ...this.wordsOf(text).map((word) => this.ids.get(word) ?? this.unknown)];
  }

  strangers(text) {
    return [...new Set(this.wordsOf(text).filter((word) => !this.ids.has(word)))];
  }

  pieces(ids) {
    let [starts, before] = [true, ""];
    return ids.map((id) => {
      if (id === this.bos) return "";
      const word = this.tokens[id];
      const glued = NO_SPACE_BEFORE.has(word) || before === "“" || before === "";
      const capital = starts && !(before === "”" && this.speech.has(word));
      starts = SENTENCE_ENDS.has(word) || word === "“" || word === ":" || (starts && word === "”");
      before = word;
      return (glued ? "" : " ") + (capital ? word[0].toUpperCase() + word.slice(1) : word);
    });
  }

  named(id) {
    const signs = { [this.bos]: "⟨start⟩", [this.eos]: "⟨end⟩", [this.unknown]: "⟨unknown⟩" };
    return signs[id] ?? this.tokens[id];
  }
}

// ---- characters ----

class CharacterTokenizer {
  constructor({ tokens }) {
    this.tokens = tokens;
    this.ids = new Map(tokens.map((token, id) => [token, id]));
  }

  encode(text) {
    const characters = [...text];
    const unknown = characters.filter((one) => !this.ids.has(one)).sort((a, b) => a.codePointAt(0) - b.codePointAt(0));
    const count = this.tokens.length;
    if (unknown.length) throw new Error(`The text holds “${unknown[0]}”, none of the ${count} characters of this model.`);
    return characters.map((one) => this.ids.get(one));
  }

  strangers() {
    return [];
  }

  pieces(ids) {
    return ids.map((id) => this.tokens[id]);
  }

  named(id) {
    return visible(this.tokens[id]);
  }
}

// ---- byte-pair encoding with GPT-2's pattern ----

// Contractions; letters, digits or punctuation after a space; whitespace. The \s of Python is White_Space, that of
// JavaScript is not quite.
const WORDS = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+/u;
const SPACES = /\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/u;
const CHUNKS = new RegExp(`${WORDS.source}|${SPACES.source}`, "gu");

class BytePairTokenizer {
  // A token is a string with a letter for each byte; a merge is a pair of ids, the first learned first.
  constructor({ tokens, merges }) {
    this.tokens = tokens;
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank]));
  }

  encode(text) {
    if (!text.isWellFormed()) throw new Error("The text holds half a character (a lone surrogate).");
    return (text.match(CHUNKS) ?? []).flatMap((chunk) => this.merged(chunk));
  }

  // Merges the pair that was learned first, the leftmost of equals, until none is left.
  merged(chunk) {
    const ids = [...new TextEncoder().encode(chunk)].map((byte) => this.ids.get(String.fromCharCode(byte)));
    const rank = (place) => this.ranks.get(`${ids[place]} ${ids[place + 1]}`) ?? Infinity;
    for (;;) {
      let best = 0;
      for (let place = 1; place < ids.length - 1; place += 1) if (rank(place) < rank(best)) best = place;
      if (rank(best) === Infinity) return ids;
      ids.splice(best, 2, this.ids.get(this.tokens[ids[best]] + this.tokens[ids[best + 1]]));
    }
  }

  strangers() {
    return [];
  }

  // A character that several tokens spell belongs to the last of them.
  pieces(ids) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return ids.map((id, place) => decoder.decode(this.bytesOf(id), { stream: place < ids.length - 1 }));
  }

  bytesOf(id) {
    return Uint8Array.from(this.tokens[id], (letter) => letter.charCodeAt(0));
  }

  named(id) {
    return visible(new TextDecoder().decode(this.bytesOf(id)));
  }
}
