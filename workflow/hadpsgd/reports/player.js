// Plays stretches of the audio that a section carries (script.clips: FLAC in base64).
const play = (() => {
  let context, source, pressed, asked = 0;
  const decoded = new Map();
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;
  const clips = section => section.clips ??= JSON.parse(section.querySelector("script.clips").textContent);
  const stop = () => {
    if (source) { source.onended = null; source.stop(); source = null; }
    if (pressed) { pressed.removeAttribute("aria-pressed"); pressed = null; }
  };
  const buffer = (section, number) => {
    const key = `${section.id} ${number}`;
    if (!decoded.has(key)) {
      if (decoded.size > 50) decoded.clear();
      decoded.set(key, context.decodeAudioData(bytes(clips(section)[number])));
    }
    return decoded.get(key);
  };
  return async button => {
    const again = button === pressed;
    stop();
    const turn = ++asked;
    if (again) return;
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    context ??= new AudioContext();
    const [number, from, to] = button.dataset.play.split(",").map(Number);
    const sound = await buffer(button.closest("section"), number);
    if (turn !== asked) return;
    const begin = Math.max(0, from || 0), end = Math.min(sound.duration, to ?? sound.duration);
    source = new AudioBufferSourceNode(context, {buffer: sound});
    source.connect(context.destination);
    source.onended = stop;
    source.start(0, begin, Math.max(0.05, end - begin));
  };
})();
document.addEventListener("click", event => {
  const button = event.target.closest("[data-play]");
  if (button) play(button);
});
