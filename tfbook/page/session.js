// What the reader works on: a text as tokens, what is changed inside the model, and what it computed of the text.
// The model reads a token once and goes on from its cache; a change inside it makes it read the text again.

class Session {
  constructor(model, tokenizer) {
    Object.assign(this, { model, tokenizer, silenced: new Set(), implants: [], past: "" });
    this.random = generator(1);
    this.settings = { temperature: 0.7, k: Infinity, p: 1 };
    this.chosen = { layer: 0, head: 0 };
    this.original = this.reading = model.begin();
  }

  get ids() {
    return this.reading.ids;
  }

  get length() {
    return this.ids.length;
  }

  get isChanged() {
    return this.silenced.size + this.implants.length > 0;
  }

  get isFull() {
    return this.length >= this.model.longest;
  }

  // Implants stay where the text up to their place does. Throws what encode throws.
  setText(text) {
    const all = this.tokenizer.encode(text);
    const most = this.model.longest;
    const ids = this.isFinite ? all.slice(0, most) : all.slice(-most);
    this.implants = this.implants.filter(({ place }) => place < sharedLength(ids, this.ids));
    this.past = this.isFinite ? "" : this.tokenizer.pieces(all).slice(0, -most).join("");
    this.hasEnded = false;
    this.readAgain(ids);
  }

  // `original` is the reading without any change; it is the same object while there is none.
  readAgain(ids = this.ids) {
    const read = [...ids]; // not the reading's own list, which is about to change
    this.model.readOn(this.original, read);
    this.reading = this.isChanged ? this.model.read(read, this) : this.original;
    this.at = this.length - 1;
  }

  append(id) {
    if (this.isFull) this.forgetHalf();
    this.model.append(this.reading, id);
    if (this.original !== this.reading) this.model.append(this.original, id);
    this.at = this.length - 1;
  }

  // A model of endless text goes on with the newer half of what it sees; what it has forgotten is text alone.
  forgetHalf() {
    const kept = Math.ceil(this.length / 2);
    this.past += this.tokenizer.pieces(this.ids).slice(0, -kept).join("");
    this.implants = [];
    this.readAgain(this.ids.slice(-kept));
  }

  // Puts a token behind the chosen place instead of what followed it.
  chooseNext(id) {
    const at = this.at;
    if (at < this.length - 1) {
      this.implants = this.implants.filter(({ place }) => place <= at);
      this.readAgain(this.ids.slice(0, at + 1));
    }
    this.accept(id);
  }

  // Whether a token can follow: neither has the text ended, nor sees the model no further.
  get canGoOn() {
    return this.length > 0 && !this.hasEnded && !(this.isFull && this.isFinite);
  }

  // Samples a token and appends it; false once the text has ended.
  step() {
    if (!this.canGoOn) return false;
    this.accept(drawFrom(filtered(this.reading.logits.at(-1), this.settings), this.random()));
    return !this.hasEnded;
  }

  accept(id) {
    this.hasEnded = id === this.tokenizer.eos;
    if (!this.hasEnded && !(this.isFull && this.isFinite)) this.append(id);
  }

  // A text with a sign for its beginning, such as a story, cannot lose its first half.
  get isFinite() {
    return this.tokenizer.bos !== undefined;
  }

  toggleSilence(layer, head) {
    const key = headKey(layer, head);
    if (!this.silenced.delete(key)) this.silenced.add(key);
    this.changeModel();
  }

  // Puts a vector of another reading into this one; one that is there already is replaced.
  implant({ layer, head, place, vector, said }) {
    const same = (one) => one.layer === layer && one.head === head && one.place === place;
    this.implants = [...this.implants.filter((one) => !same(one)), { layer, head, place, vector, said }];
    this.changeModel();
  }

  removeImplant(implant) {
    this.implants = this.implants.filter((one) => one !== implant);
    this.changeModel();
  }

  restore() {
    this.silenced = new Set();
    this.implants = [];
    this.changeModel();
  }

  changeModel() {
    const at = this.at;
    this.readAgain();
    this.at = at;
    this.hasEnded = false;
  }

  // What the page writes for each place: its piece of the text, or a name where that is blank.
  labels() {
    return labelsOf(this.ids, this.tokenizer);
  }
}

function labelsOf(ids, tokenizer) {
  return tokenizer.pieces(ids).map((piece, place) => {
    const isText = piece.trim() && ids[place] !== tokenizer.unknown;
    return isText ? piece.trim() : tokenizer.named(ids[place]);
  });
}
