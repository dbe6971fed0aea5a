// Keeps the parts of the page fresh, as the server draws them. Without it the page is drawn anew every few seconds.
'use strict';
(() => {
  const pause = document.getElementById('pause');
  let source = null;

  const say = (state) => { document.body.dataset.state = state; };

  const put = (part, html) => {
    const at = getSelection();
    if (!at.isCollapsed && part.contains(at.anchorNode)) return; // somebody copies what stands there
    const focus = part.contains(document.activeElement) ? document.activeElement.id : '';
    part.innerHTML = html;
    if (focus) document.getElementById(focus)?.focus({preventScroll: true});
  };

  const stop = () => { source?.close(); source = null; };

  const start = () => {
    stop();
    if (document.hidden || pause.ariaPressed === 'true') return;
    source = new EventSource('/events' + location.search);
    source.onopen = () => say('live');
    source.onerror = () => {
      say('lost');
      if (source?.readyState === EventSource.CLOSED) setTimeout(start, 10000); // it was refused, and does not try again by itself
    };
    for (const part of document.querySelectorAll('[data-part]')) {
      source.addEventListener(part.dataset.part, (event) => put(part, event.data));
    }
  };

  pause.hidden = false;
  pause.addEventListener('click', () => {
    const now = pause.ariaPressed !== 'true';
    pause.ariaPressed = String(now);
    pause.textContent = now ? 'Go on' : 'Pause';
    say(now ? 'still' : 'live');
    start();
  });
  document.addEventListener('visibilitychange', start);
  start();
})();
