// Sets the theme before the first paint, so that the page does not flash in the wrong colours.
(() => {
  const kept = ["light", "dark"].find((name) => {
    try {
      return localStorage.getItem("lakefeed.theme") === name;
    } catch {
      return false;
    }
  });
  if (kept) document.documentElement.dataset.theme = kept;
})();
