// Sets the theme before the first paint, because a page in the wrong colours would flash.
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
