#include "base/strings.h"
#include "tools/explain/page_parts.h"

namespace fleet::explain {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark;
--page: #fbfcfd; --card: #ffffff; --ink: #1c2430; --soft: #5b6675; --line: #e3e8ef;
--blue: #1971c2; --orange: #d9480f; --green: #2b8a3e; --violet: #862e9c; --grey: #868e96;
--added: #ebfbee; --changed: #fff9db; --moved: #e7f5ff; --warn: #fff4e6;
--c0: #4c8fd6; --c1: #f08c3c; --c2: #51ab61; --c3: #ae62c4; --c4: #e4626f; --c5: #2ea3b4;
--c6: #a4826f; --c7: #8494a7; }
@media (prefers-color-scheme: dark) { :root {
--page: #10151d; --card: #171e29; --ink: #e8edf4; --soft: #9aa7b8; --line: #2a3443;
--blue: #74c0fc; --orange: #ffa94d; --green: #8ce99a; --violet: #e599f7; --grey: #909ba9;
--added: #173524; --changed: #3a3318; --moved: #17324f; --warn: #2f2415; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui,
-apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -0.01em; margin: 4px 0 8px;
overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 52px 0 4px; letter-spacing: -0.005em; }
p { margin: 0 0 12px; } .soft { color: var(--soft); } .lead { max-width: 62ch; }
code, .mono { font-family: ui-monospace, SFMono-Regular, "DejaVu Sans Mono", Menlo, monospace;
font-size: 12.5px; }
.kicker { color: var(--soft); font-size: 13px; letter-spacing: 0.04em; }
.top { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 380px); gap: 32px;
align-items: center; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
margin: 28px 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
padding: 12px 16px; }
.tile dt { color: var(--soft); font-size: 13px; } .tile dd { margin: 0; font-size: 21px;
font-weight: 600; font-variant-numeric: tabular-nums; }
.tile small { display: block; color: var(--soft); font-size: 12.5px; font-weight: 400; }
.note { border-radius: 10px; padding: 12px 16px; margin: 20px 0 0; border: 1px solid var(--line);
background: var(--warn); border-left: 4px solid var(--orange); }
.note b { display: block; } .note.good { background: var(--added); border-left-color: var(--green); }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 99px; padding: 1px 10px;
font-size: 13px; margin: 0 6px 6px 0; background: var(--card); }
.bars { display: grid; gap: 10px; margin: 18px 0; }
.bar { display: grid; grid-template-columns: 210px minmax(0, 1fr) 130px; gap: 14px;
align-items: center; }
.bar .track { display: flex; height: 26px; border-radius: 6px; overflow: hidden; gap: 2px; }
.bar i { display: block; min-width: 2px; height: 100%; }
.bar .end { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px;
background: var(--card); margin: 12px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 7px 14px; text-align: right; white-space: nowrap; border-top: 1px solid
var(--line); font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; border-top: 0; }
th:first-child, td:first-child, .left { text-align: left; } td.left { white-space: normal; }
tr.moved { background: var(--moved); } tr.changed { background: var(--changed); }
summary { cursor: pointer; } .more > summary { color: var(--blue); margin: 8px 0; }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft);
margin: 12px 0; }
.key span::before { content: ""; display: inline-block; width: 11px; height: 11px;
border-radius: 3px; margin-right: 6px; vertical-align: -1px; background: var(--swatch);
border: 1px solid var(--line); }
.pick { position: absolute; opacity: 0; }
.controls { display: inline-flex; flex-wrap: wrap; gap: 6px; margin: 4px 18px 12px 0;
vertical-align: top; }
.controls label { border: 1px solid var(--line); background: var(--card); border-radius: 8px;
padding: 4px 12px; font-size: 14px; cursor: pointer; }
.rows { border: 1px solid var(--line); border-radius: 10px; background: var(--card);
overflow: clip; }
.row { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); }
.row + .row { border-top: 1px solid var(--line); }
.row > div { padding: 3px 8px; min-width: 0; } .row > div + div { border-left: 1px solid
var(--line); }
.row.head { font-weight: 600; position: sticky; top: 0; background: var(--card); z-index: 1;
border-bottom: 1px solid var(--line); } .row.head > div { padding: 8px 16px; }
.op { border-left: 3px solid var(--role, var(--grey)); border-radius: 4px; margin: 2px 0;
overflow-wrap: anywhere; }
.op > summary { list-style: none; padding: 3px 8px; border-radius: 0 4px 4px 0; }
.op > summary::-webkit-details-marker { display: none; }
.op > summary:focus-visible, label:focus-visible { outline: 2px solid var(--blue); }
.op > summary:hover { background: var(--line); }
.op b { font-weight: 600; } .op .pass { color: var(--soft); font-size: 12px; float: right;
margin-left: 8px; }
.op > p { margin: 2px 8px 6px; font-size: 14px; } .op > code { display: block; margin: 0 8px 8px;
color: var(--soft); }
.backward { --role: var(--blue); } .optimize { --role: var(--green); }
.rpc { --role: var(--orange); } .lrsched { --role: var(--violet); }
.added > summary { background: var(--added); } .changed > summary { background: var(--changed); }
.moved > summary { background: var(--moved); } .kept > summary { color: var(--soft); }
.gone > summary { color: var(--soft); text-decoration: line-through; }
.block { font-size: 12px; color: var(--soft); margin: 4px 0 0 11px; }
.picture { width: 100%; max-width: 440px; height: auto; } .picture text { fill: var(--ink); font-size: 14px;
font-weight: 600; } .picture .small { fill: var(--soft); font-size: 13px; font-weight: 400; }
.picture rect { fill: var(--card); stroke: var(--line); stroke-width: 1.5; }
.picture .link { fill: none; stroke: var(--blue); opacity: 0.45; }
footer { margin-top: 56px; color: var(--soft); font-size: 13px; }
@media (max-width: 760px) {
main { padding: 24px 14px 48px; } h1 { font-size: 25px; } h2 { margin-top: 40px; }
.top { grid-template-columns: minmax(0, 1fr); gap: 20px; }
.tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; } .tile { padding: 10px 12px; }
.tile dd { font-size: 18px; }
.bar { grid-template-columns: minmax(0, 1fr) auto; gap: 4px 10px; } .bar .track { grid-column: 1 / -1;
grid-row: 2; }
.row { grid-template-columns: minmax(0, 1fr); } .row.head { display: none; }
.row > div + div { border-left: 0; } .row > div:empty, .row > .same { display: none; }
.row > div[data-at]::before { content: attr(data-at); display: block; font-size: 12px;
color: var(--soft); margin: 2px 0 0 2px; } }
@media (max-width: 760px) { .row > div { padding: 2px 8px; } .row > div.at-local::before
{ display: none; } }
@media print { .controls { display: none; } }
)";

}  // namespace

std::string page_style(size_t servers) {
  std::string style = str_cat("<style>", kStyle);
  for (const char* set : {"main", "startup"}) {
    for (size_t i = 0; i < servers; ++i) {
      const std::string id = str_cat("#", set, "-server-", i, ":checked");
      style += str_cat(id, " ~ .rows .of:not(.s", i, ") { display: none; }\n", id,
                       " ~ .controls label[for=", set, "-server-", i,
                       "] { background: var(--moved); border-color: var(--blue); }\n");
    }
    const std::string changes = str_cat("#", set, "-changes:checked");
    style += str_cat(changes, " ~ .rows .row.still { display: none; }\n", changes,
                     " ~ .controls label[for=", set,
                     "-changes] { background: var(--moved); border-color: var(--blue); }\n");
  }
  return style + "</style>\n";
}

}  // namespace fleet::explain
