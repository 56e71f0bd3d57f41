"use strict";
// Whatever goes wrong in this page is shown in it, and counted for those who test it.

const troubles = [];

function trouble(message) {
  troubles.push(message);
  document.documentElement.dataset.errors = String(troubles.length);
  const box = document.getElementById("trouble");
  box.hidden = false;
  box.textContent = `This page could not be drawn as it should: ${troubles.join("; ")}`;
}

document.documentElement.dataset.errors = "0";
addEventListener("error", (event) => trouble(event.message));
addEventListener("unhandledrejection", (event) => trouble(String(event.reason)));

