//! Results as a plot: for each load, the share of `limit`'s capacity that a server reaches.
//!
//! Owns    a small hand-written SVG for light and dark pages; bars are labelled, so colours carry no meaning.

use redlatch_cli::load::svg::Svg;

use super::results::{CPU_PER_REQUEST, LIMIT, OURS, Results, has_one_thread};
use super::table::percent;

const PANELS: [(&str, &str); 2] = [("plain", "one request at a time"), ("pipelined", "pipelined by 16")];
/// Pixels.
const LABEL_WIDTH: f64 = 130.0;
const PANEL_WIDTH: f64 = 330.0;
const PANEL_GAP: f64 = 50.0;
const BAR_HEIGHT: f64 = 9.0;
const ROW_GAP: f64 = 12.0;
const HEAD_HEIGHT: f64 = 92.0;

pub(crate) fn svg(results: &Results) -> String {
    let loads: Vec<&str> = results
        .figures
        .iter()
        .filter(|figure| figure.unit == CPU_PER_REQUEST && figure.what == PANELS[0].0)
        .map(|figure| figure.load.as_str())
        .collect();
    let is_shown = |name: &str| name != LIMIT && has_one_thread(name);
    let servers: Vec<&str> =
        results.servers.iter().map(|(name, _)| name.as_str()).filter(|name| is_shown(name)).collect();
    let row_height = servers.len() as f64 * BAR_HEIGHT + ROW_GAP;
    let height = HEAD_HEIGHT + loads.len() as f64 * row_height + 12.0;
    let width = LABEL_WIDTH + 2.0 * PANEL_WIDTH + PANEL_GAP + 50.0;
    let mut drawing = head(width, height, &servers);
    for (panel, (mode, title)) in PANELS.iter().enumerate() {
        let left = LABEL_WIDTH + panel as f64 * (PANEL_WIDTH + PANEL_GAP);
        axis(&mut drawing, left, height, title);
        for (row, load) in loads.iter().enumerate() {
            let top = HEAD_HEIGHT + row as f64 * row_height;
            if panel == 0 {
                let middle = top + (row_height - ROW_GAP) / 2.0 + 4.0;
                drawing.text("", [LABEL_WIDTH - 10.0, middle], "end", load);
            }
            let Some(figure) = results.figure(load, mode) else { continue };
            for (bar, server) in servers.iter().enumerate() {
                if let Some(share) = figure.multiple(LIMIT, server) {
                    draw_bar(&mut drawing, [left, top + bar as f64 * BAR_HEIGHT], share, bar);
                }
            }
        }
    }
    drawing.finish() + "\n"
}

/// The title, the legend and the colours.
fn head(width: f64, height: f64, servers: &[&str]) -> Svg {
    let title = "Requests per second of processor time, as a share of a server that stores nothing";
    let mut drawing = Svg::new(width, height, title, STYLE);
    drawing.rectangle("paper", [0.0, 0.0], [width, height]);
    drawing.text(
        "",
        [20.0, 24.0],
        "start",
        "Requests per second of CPU; 100 % is a server that parses, answers +OK, and stores nothing",
    );
    let mut left = 20.0;
    for (index, server) in servers.iter().enumerate() {
        drawing.rectangle(class(index), [left, 40.0], [12.0, 10.0]);
        drawing.text("", [left + 18.0, 49.0], "start", server);
        left += 44.0 + 7.0 * server.len() as f64;
    }
    debug_assert!(servers.first().is_none_or(|first| *first == OURS), "ours has the strong colour");
    drawing
}

fn axis(drawing: &mut Svg, left: f64, height: f64, title: &str) {
    drawing.text("", [left, HEAD_HEIGHT - 14.0], "start", title);
    drawing.text("", [left + PANEL_WIDTH, HEAD_HEIGHT - 14.0], "middle", "100 %");
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = left + share * PANEL_WIDTH;
        let class = if share == 1.0 { "limit" } else { "grid" };
        drawing.line(class, [x, HEAD_HEIGHT - 6.0], [x, height - 12.0]);
    }
}

fn draw_bar(drawing: &mut Svg, [left, top]: [f64; 2], share: f64, server: usize) {
    // Noise may put a server beyond the limit; its label is exact, and the bar ends a little past the line.
    let length = share.min(1.06) * PANEL_WIDTH;
    drawing.rectangle(class(server), [left, top], [length, BAR_HEIGHT - 1.0]);
    let end = [left + length + 4.0, top + BAR_HEIGHT - 2.0];
    drawing.text("figure", end, "start", &percent(share));
}

/// The class of a server's colour.
fn class(server: usize) -> &'static str {
    ["s0", "s1", "s2", "s3", "s4"][server.min(4)]
}

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.figure{font-size:8px;fill:#59636e}.paper{fill:#fff}\
.grid{stroke:#d1d9e0}.limit{stroke:#59636e;stroke-dasharray:3 3}\
.s0{fill:#0b66d0}.s1{fill:#9aa4ae}.s2{fill:#c9a227}.s3{fill:#7c8f5a}.s4{fill:#b5566b}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.figure{fill:#9198a1}.paper{fill:#0d1117}\
.grid{stroke:#30363d}.limit{stroke:#9198a1}\
.s0{fill:#58a6ff}.s1{fill:#7d8590}.s2{fill:#d4b13f}.s3{fill:#8fa568}.s4{fill:#d4788b}}";
