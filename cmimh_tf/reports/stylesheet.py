"""The look of the report page."""

STYLESHEET = """
:root { --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --panel: #f6f8fa; --good: #1a7f37; --bad: #c1331f; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 16px; }
h1 { font-size: 26px; margin: 12px 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
.facts, .note, .none, small { color: var(--soft); }
.facts, .note { margin: 4px 0 12px; }
.badge { font-size: 14px; font-weight: 600; color: #fff; border-radius: 12px; padding: 3px 10px; vertical-align: middle;
  white-space: nowrap; }
.badge.good { background: var(--good); } .badge.bad { background: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin-top: 12px; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.card b { font-size: 28px; font-weight: 650; } .card .task { display: block; color: var(--soft); }
.change { margin-left: 8px; font-weight: 600; } .change.good, .mark.good { color: var(--good); }
.change.bad, .mark.bad { color: var(--bad); }
.reasons { padding-left: 20px; margin: 8px 0; }
.warning { background: #fff8c5; border-left: 4px solid #bf8700; padding: 8px 12px; margin: 8px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 8px 0; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); gap: 16px; }
.figures img, img.wide { width: 100%; height: auto; } img.wide { max-width: 760px; }
.example { display: grid; grid-template-columns: 190px 1fr; gap: 16px; align-items: start; padding: 12px 0;
  border-bottom: 1px solid var(--line); }
.query { font-weight: 600; overflow-wrap: anywhere; } .query img { width: 96px; border-radius: 6px; }
ol { list-style: none; margin: 0; padding: 0; }
ol.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); gap: 10px; }
ol.pictures img { width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: 6px; border: 1px solid var(--line); }
ol.pictures li.good img { border: 2px solid var(--good); } ol.pictures li.bad img { opacity: 0.75; }
ol.pictures li { font-size: 13px; overflow-wrap: anywhere; } ol.pictures li > * { display: block; }
ol.texts li { display: flex; gap: 12px; justify-content: space-between; padding: 3px 0; overflow-wrap: anywhere; }
.mark { font-weight: 600; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; background: var(--panel); padding: 12px; border-radius: 8px; font-size: 13px; }
summary { cursor: pointer; }
@media (max-width: 560px) {
  .example { grid-template-columns: 1fr; gap: 8px; } main { padding: 10px; } h1 { font-size: 21px; }
  .cards { grid-template-columns: 1fr 1fr; } th, td { padding: 5px 8px; }
}
@media print { h2 { break-after: avoid; } .example, .card, .figures img { break-inside: avoid; } }
"""
