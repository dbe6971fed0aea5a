// Keeps the parts of a page fresh, as the server draws them. Without it the page is drawn anew every few seconds.
// What has an id in a part keeps the focus, stays open (details) and ticked (checkboxes).
'use strict';
(() => {
  const quiet = 10000; // ms without news after which what is shown counts as old
  const pause = document.getElementById('pause');
  const top = document.querySelector('header.top');
  const marks = {}; // of the parts that are shown, by their names
  let heard = Date.now(); // when the last news came
  let old = heard + quiet; // when what is shown counts as old
  let asking = null; // aborts the question under way
  let timer = 0;

  const say = (state) => {
    top.dataset.since = new Date(heard).toLocaleTimeString();
    document.body.dataset.state = state;
  };

  const put = (name, {html, mark}) => {
    const part = document.querySelector(`[data-part=${name}]`);
    if (!part) return; // the proxy is newer than this page
    const at = getSelection();
    if (!at.isCollapsed && part.contains(at.anchorNode)) return; // somebody copies what stands there
    const focus = part.contains(document.activeElement) ? document.activeElement.id : '';
    const open = [...part.querySelectorAll('details[open][id]')].map((one) => one.id);
    const ticked = [...part.querySelectorAll('input[id]:checked')].map((one) => one.id);
    part.innerHTML = html;
    marks[name] = mark;
    for (const id of open) document.getElementById(id)?.setAttribute('open', '');
    for (const id of ticked) document.getElementById(id)?.setAttribute('checked', '');
    if (focus) document.getElementById(focus)?.focus({preventScroll: true});
  };

  const ask = async (signal) => {
    const wanted = new URLSearchParams(location.search);
    wanted.set('page', location.pathname);
    wanted.set('have', Object.values(marks).join());
    const answer = await fetch('/parts?' + wanted, {signal});
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.json();
  };

  const stop = () => {
    asking?.abort();
    asking = null;
    clearTimeout(timer);
  };

  const round = async () => {
    const mine = asking = new AbortController();
    const left = old - Date.now();
    if (left <= 0) say('lost'); // the machine may have slept
    const late = setTimeout(() => mine.abort(), left > 0 ? left : quiet);
    let next = 1000;
    try {
      const news = await ask(mine.signal);
      if (mine !== asking) return;
      next = news.next;
      heard = Date.now();
      old = heard + Math.max(quiet, next + quiet / 2); // a page of many locks is drawn every few seconds only
      for (const [name, part] of Object.entries(news.parts)) put(name, part);
      say('live');
    } catch {
      if (mine !== asking) return;
      say('lost');
    } finally {
      clearTimeout(late);
    }
    timer = setTimeout(round, next);
  };

  const start = () => {
    stop();
    if (!document.hidden && pause.ariaPressed !== 'true') round();
  };

  pause.hidden = false;
  pause.addEventListener('click', () => {
    const now = pause.ariaPressed !== 'true';
    pause.ariaPressed = String(now);
    pause.textContent = now ? 'Go on' : 'Pause';
    if (now) say('still');
    start();
  });
  document.addEventListener('visibilitychange', start);
  start();
})();
