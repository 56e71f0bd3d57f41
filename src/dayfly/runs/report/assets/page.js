// Colours, printing, and the word that all is drawn.

const dark = matchMedia("(prefers-color-scheme: dark)");

/** auto: as the system says; the choice holds for this page. */
function themed(choice, redraw) {
  const theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === choice));
  }
  redraw();
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  let figure, choice = "auto";
  const redraw = () => figure?.draw();
  themed(choice, redraw);
  figure = new TimelineFigure(decodeTimeline(data.timeline, data.rows));
  const charts = document.getElementById("charts");
  for (const curve of data.figures) new Chart(curve, charts);
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.addEventListener("click", () => themed(choice = button.dataset.themeChoice, redraw));
  }
  dark.addEventListener("change", () => themed(choice, redraw));
  // Paper is white, and nothing folds out on it.
  const folded = [];
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      folded.push(details);
    }
    redraw();
  });
  addEventListener("afterprint", () => {
    for (const details of folded.splice(0)) details.open = false;
    themed(choice, redraw);
  });
  document.documentElement.dataset.drawn =
    `${figure.drawn} spans of ${figure.timeline.bands.length} workers, ${data.figures.length} figures`;
}

main();
