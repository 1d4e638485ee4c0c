"""The page's one style sheet: light and dark, narrow and wide, screen and paper."""

CSS = """
:root { color-scheme: light dark; --page: #fff; --panel: #f6f7f9; --ink: #22252b; --quiet: #6b717b; --rule: #d9dce1;
  --mark: #ffe9a8; --up: #1d7a4b; --down: #b3403a; --series-0: #2f6fb2; --series-1: #d1711f; --series-2: #2e8b57;
  --series-3: #8a5bb5; --series-4: #c2456b; --series-5: #1f8f9c; --series-6: #8c6d31; --series-7: #5b6abf; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #15171b; --panel: #1e2127; --ink: #e4e6ea;
  --quiet: #9ba2ad; --rule: #3a3f48; --mark: #5f4d12; --up: #6fcf97; --down: #f08a80; --series-0: #6aa8e6;
  --series-1: #eb9a4f; --series-2: #62bf8b; --series-3: #b791dc; --series-4: #e57f9d; --series-5: #58c3cf;
  --series-6: #c7a667; --series-7: #98a4ec; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; margin: .5rem 0; } h2 { margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--rule); }
h3 { margin: 1.5rem 0 .3rem; } p { max-width: 48rem; margin: .5rem 0; } a { color: var(--series-0); }
small, .quiet, figcaption { color: var(--quiet); font-size: .85rem; } .missing { color: var(--quiet);
  font-style: italic; }
nav a { margin-right: 1rem; white-space: nowrap; }
.charts { columns: 2 22rem; column-gap: 1rem; }
figure { margin: 0 0 1rem; padding: .8rem; background: var(--panel); border-radius: .5rem; max-width: 40rem;
  break-inside: avoid; }
figure h3 { margin: 0 0 .4rem; font-size: 1rem; } figure svg { width: 100%; height: auto; display: block; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: inherit !important; } svg text:not([style*="fill"]) { fill: var(--ink); }
svg g:has(> title):hover { opacity: .6; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.1rem .25rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child { text-align: left; font-weight: 600; } thead th { color: var(--quiet);
  border-bottom: 1px solid var(--rule); }
tbody tr + tr > * { border-top: 1px solid var(--rule); } .text { text-align: left; white-space: normal;
  min-width: 16rem; }
details { margin: .3rem 0; } summary { cursor: pointer; padding: .15rem 0; }
details > :not(summary) { margin-left: .9rem; }
mark { background: var(--mark); color: inherit; border-radius: .15rem; padding: 0 .1rem; }
.up { color: var(--up); } .down { color: var(--down); }
.relevant { font-weight: 600; color: var(--up); }
@media (max-width: 40rem) { body { padding: .7rem; font-size: .95rem; } figure { padding: .4rem; } .text {
  min-width: 13rem; } }
@media print { body { max-width: none; padding: 0; font-size: 9pt; } nav { display: none; } .scroll {
  overflow: visible; }
  table { font-size: .66rem; } th { white-space: normal; } h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  figure { background: none; border: 1px solid var(--rule); } }
"""
