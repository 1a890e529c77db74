//! A timeline as a picture (SVG), as a page (HTML), and as JSON.
//!
//! Rule    the picture and the page stand alone: no script, no font, no other file; light or dark as the reader's system is.

use std::fmt::Write as _;

use super::check::Finding;
use super::event::{json_text, shown};
use super::timeline::{Mark, Span, Timeline, seconds};
use crate::svg::{Svg, escaped};

/// Widths and heights, in pixels.
const LABEL_WIDTH: usize = 170;
const LANE_HEIGHT: usize = 40;
const BAR_HEIGHT: usize = 18;
const HEAD_HEIGHT: usize = 34;
const STEP_WIDTH_MAX: usize = 36;
const STEP_WIDTH_MIN: usize = 8;
/// The width that a short history fills.
const WIDTH_WANTED: usize = 1100;
/// Characters of a name beside a lane.
const NAME_CHARS_MAX: usize = 22;
/// Pixels between two times over the picture.
const TIME_WIDTH: usize = 64;
/// Colours of locks, in turn, light enough for black and dark enough for white.
const COLOURS: &[&str] = &["#3b82f6", "#16a34a", "#d97706", "#9333ea", "#0d9488", "#db2777"];

impl Timeline {
    /// As SVG.
    pub fn svg(&self) -> String {
        let room = WIDTH_WANTED.saturating_sub(LABEL_WIDTH) / self.steps.len().max(1);
        let step_width = room.clamp(STEP_WIDTH_MIN, STEP_WIDTH_MAX);
        let width = LABEL_WIDTH + step_width * (self.steps.len() + 1);
        let height = HEAD_HEIGHT + LANE_HEIGHT * self.lanes.len().max(1) + 28;
        let svg = Svg::new(width as f64, height as f64, "Locks by client and time", STYLE);
        Drawing { timeline: self, step_width, svg }.draw(width, height)
    }

    /// As a page with the picture, what is wrong, and every step.
    pub fn html(&self, findings: &[Finding]) -> String {
        let mut out = String::from(PAGE);
        if findings.is_empty() {
            out.push_str("<p>TEST.CHECK finds nothing wrong with the locks.</p>\n");
        } else {
            out.push_str("<ul class=\"findings\">\n");
            for finding in findings {
                let lines: Vec<String> = finding.lines.iter().map(|line| escaped(line)).collect();
                let (text, lines) = (escaped(&finding.text), lines.join("\n"));
                // Writing to a String cannot fail.
                _ = writeln!(out, "<li><b>{}</b> {text}<pre>{lines}</pre></li>", finding.rule);
            }
            out.push_str("</ul>\n");
        }
        _ = writeln!(out, "<div class=\"picture\">{}</div>", self.svg());
        out.push_str("<table><tr><th>seconds</th><th>what happened</th></tr>\n");
        let begin = self.begin();
        for (number, step) in self.steps.iter().enumerate() {
            let (time, text) = (seconds(begin, step.at), escaped(&step.text));
            _ = writeln!(out, "<tr id=\"step{number}\"><td>{time}</td><td>{text}</td></tr>");
        }
        out.push_str("</table>\n</body>\n</html>\n");
        out
    }

    /// As JSON: `lanes`, `steps`, `holds`, `waits`, `left_out`, `findings`. Spans name lanes and steps by their places.
    pub fn json(&self, findings: &[Finding]) -> String {
        let lanes = listed(&self.lanes, |out, lane| {
            field(out, "name", &lane.name);
            out.push(',');
            field(out, "library", &lane.library);
        });
        let steps = listed(&self.steps, |out, step| {
            let lane = step.lane.map_or("null".to_owned(), |lane| lane.to_string());
            _ = write!(out, "\"at\":{},\"lane\":{lane},", step.at);
            if let Some(mark) = step.mark {
                field(out, "mark", mark.name());
                out.push(',');
            }
            field(out, "text", &step.text);
        });
        let span = |out: &mut String, span: &Span| {
            let token = span.token.map_or(String::new(), |token| format!(",\"token\":{token}"));
            _ = write!(out, "\"lane\":{},\"from\":{},\"to\":{}{token},", span.lane, span.from, span.to);
            field(out, "key", &span.key);
        };
        let (holds, waits) = (listed(&self.holds, span), listed(&self.waits, span));
        let findings = listed(findings, |out, finding| {
            field(out, "rule", finding.rule);
            out.push(',');
            field(out, "key", &String::from_utf8_lossy(&finding.key));
            out.push(',');
            field(out, "text", &finding.text);
        });
        format!(
            "{{\"lanes\":{lanes},\"steps\":{steps},\"holds\":{holds},\"waits\":{waits},\"left_out\":{},\
             \"findings\":{findings}}}\n",
            self.left_out
        )
    }

    /// The time of the first step.
    fn begin(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.at)
    }
}

impl Mark {
    /// Its name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Expired => "expired",
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Renewed => "renewed",
            Self::Request => "request",
        }
    }
}

struct Drawing<'t> {
    timeline: &'t Timeline,
    step_width: usize,
    svg: Svg,
}

impl Drawing<'_> {
    fn draw(mut self, width: usize, height: usize) -> String {
        self.svg.put(format_args!("{HATCH}"));
        self.put_times(height);
        for (lane, known) in self.timeline.lanes.iter().enumerate() {
            let (middle, name) = (self.middle(lane), escaped(&shown(known.name.as_bytes(), NAME_CHARS_MAX)));
            self.svg.put(format_args!("<text class=\"name\" x=\"8\" y=\"{}\">{name}</text>\n", middle + 1));
            if !known.library.is_empty() {
                let library = escaped(&shown(known.library.as_bytes(), NAME_CHARS_MAX));
                let y = middle + 14;
                self.svg.put(format_args!("<text class=\"small\" x=\"8\" y=\"{y}\">{library}</text>\n"));
            }
            self.svg.put(format_args!(
                "<line class=\"lane\" x1=\"{LABEL_WIDTH}\" x2=\"{width}\" y1=\"{middle}\" y2=\"{middle}\"/>\n"
            ));
        }
        for span in &self.timeline.waits {
            self.put_span(span, "fill=\"url(#waits)\" class=\"wait\"");
        }
        for span in &self.timeline.holds {
            self.put_span(span, &format!("fill=\"{}\"", self.colour(&span.key)));
        }
        for at in 0..self.timeline.steps.len() {
            self.put_mark(at);
        }
        let y = height - 10;
        self.svg.put(format_args!("<text class=\"small\" x=\"8\" y=\"{y}\">{LEGEND}</text>\n"));
        self.svg.finish()
    }

    /// The times at which something happens, over the picture.
    fn put_times(&mut self, height: usize) {
        let (begin, mut before, mut free_from) = (self.timeline.begin(), None, 0);
        for (at, step) in self.timeline.steps.iter().enumerate() {
            let x = self.x(at);
            if before != Some(step.at) && x >= free_from {
                let bottom = height - 26;
                let time = seconds(begin, step.at);
                self.svg.put(format_args!(
                    "<line class=\"time\" x1=\"{x}\" x2=\"{x}\" y1=\"20\" y2=\"{bottom}\"/>\
                     <text class=\"small\" x=\"{x}\" y=\"14\">{time}</text>\n"
                ));
                free_from = x + TIME_WIDTH;
            }
            before = Some(step.at);
        }
    }

    fn put_span(&mut self, span: &Span, look: &str) {
        let (x, end) = (self.x(span.from), self.x(span.to));
        let (width, y) = ((end - x).max(self.step_width / 2), self.middle(span.lane) - BAR_HEIGHT / 2);
        let key = escaped(&span.key);
        let token = span.token.map(|token| format!(", token {token}")).unwrap_or_default();
        self.svg.put(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR_HEIGHT}\" rx=\"3\" {look}>\
             <title>{key}{token}</title></rect>\n"
        ));
        if let Some(token) = span.token {
            let y = self.middle(span.lane) + 4;
            self.svg.put(format_args!("<text class=\"token\" x=\"{}\" y=\"{y}\">{token}</text>\n", x + 4));
        }
    }

    fn put_mark(&mut self, at: usize) {
        let step = &self.timeline.steps[at];
        let (Some(lane), Some(mark)) = (step.lane, step.mark) else { return };
        let (x, y) = (self.x(at), self.middle(lane));
        let (top, bottom) = (y - BAR_HEIGHT / 2 - 3, y + BAR_HEIGHT / 2 + 3);
        let shape = match mark {
            Mark::Granted => return,
            Mark::Request => format!("<circle class=\"request\" cx=\"{x}\" cy=\"{y}\" r=\"3\">"),
            Mark::Renewed | Mark::Released => {
                format!("<path class=\"tick\" d=\"M{x} {top}V{bottom}\">")
            }
            Mark::Expired => {
                let (left, right) = (x - 6, x + 6);
                let (up, down) = (y - 6, y + 6);
                format!(
                    "<path class=\"expired\" d=\"M{left} {up}L{right} {down}M{left} {down}L{right} {up}\">"
                )
            }
            Mark::Fault => {
                let (left, right) = (x - 7, x + 7);
                format!("<path class=\"fault\" d=\"M{x} {top}L{right} {bottom}H{left}Z\">")
            }
        };
        let (text, end) = (escaped(&step.text), if mark == Mark::Request { "circle" } else { "path" });
        self.svg.put(format_args!("{shape}<title>{text}</title></{end}>\n"));
    }

    fn x(&self, step: usize) -> usize {
        LABEL_WIDTH + self.step_width / 2 + step * self.step_width
    }

    fn middle(&self, lane: usize) -> usize {
        HEAD_HEIGHT + lane * LANE_HEIGHT + LANE_HEIGHT / 2
    }

    /// The colour of a lock: that of its place among all locks.
    fn colour(&self, key: &str) -> &'static str {
        let mut keys: Vec<&str> = Vec::new();
        for span in &self.timeline.holds {
            if !keys.contains(&&*span.key) {
                keys.push(&span.key);
            }
        }
        let place = keys.iter().position(|known| *known == key).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    }
}

fn listed<T>(items: &[T], write: impl Fn(&mut String, &T)) -> String {
    let mut out = String::from("[");
    for (at, item) in items.iter().enumerate() {
        out.push_str(if at == 0 { "{" } else { ",{" });
        write(&mut out, item);
        out.push('}');
    }
    out.push(']');
    out
}

fn field(out: &mut String, name: &str, value: &str) {
    json_text(out, name);
    out.push(':');
    json_text(out, value);
}

const LEGEND: &str = "bar: holds, with its token; hatched: waits; tick: renews or releases; cross: the lease ends; \
                      triangle: a fault acts; dot: a request";

const STYLE: &str = "\
svg{--ink:#1f2937;--pale:#d1d5db;--soft:#6b7280;--alarm:#dc2626;background:#fff;font:12px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){svg{--ink:#e5e7eb;--pale:#374151;--soft:#9ca3af;--alarm:#f87171;background:#111827}}\
text{fill:var(--ink)}.name{font-weight:600}.small{font-size:11px;fill:var(--soft)}\
.token{fill:#fff;font-size:11px;font-weight:600}.lane{stroke:var(--pale)}.time{stroke:var(--pale);stroke-dasharray:2 3}\
.wait{stroke:var(--soft)}.request{fill:var(--soft)}.tick{stroke:var(--ink);stroke-width:2}\
.expired{stroke:var(--alarm);stroke-width:3;fill:none}.fault{fill:var(--alarm)}\
.hatch{stroke:var(--soft);stroke-width:2}";

/// How waits are filled.
const HATCH: &str = "\
<defs><pattern id=\"waits\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<line class=\"hatch\" y2=\"6\"/></pattern></defs>\n";

const PAGE: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>redlatch timeline</title>\n<style>\n\
:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:2em;background:#fff;color:#1f2937}\n\
.picture{overflow-x:auto}table{border-collapse:collapse;margin-top:1em}td,th{text-align:left;padding:2px 12px 2px 0}\n\
td{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}td:first-child{white-space:nowrap}\n\
.findings b{color:#dc2626}pre{font-size:12px;overflow-x:auto}\n\
@media(prefers-color-scheme:dark){body{background:#111827;color:#e5e7eb}.findings b{color:#f87171}}\n\
</style>\n</head>\n<body>\n<h1>redlatch timeline</h1>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::timeline::{Lane, Step};

    fn timeline() -> Timeline {
        let step = |at, lane, mark, text: &str| Step { at, lane, mark, text: text.to_owned(), token: None };
        Timeline {
            lanes: ["a <b>", "c"].map(|name| Lane { name: name.to_owned(), library: String::new() }).to_vec(),
            steps: vec![
                step(1000, Some(0), Some(Mark::Request), "a SET \"k\" & more"),
                step(1000, Some(0), Some(Mark::Granted), "a holds k"),
                step(4000, Some(1), Some(Mark::Request), "c asks"),
                step(9000, Some(0), Some(Mark::Expired), "over"),
                step(9000, Some(1), Some(Mark::Fault), "fault 1"),
                step(9000, None, None, "x has expired"),
            ],
            holds: vec![Span { lane: 0, key: "k".to_owned(), token: Some(41), from: 1, to: 3 }],
            waits: vec![Span { lane: 1, key: "k".to_owned(), token: None, from: 2, to: 4 }],
            left_out: 0,
        }
    }

    #[test]
    fn a_picture_has_lanes_bars_and_marks_and_escapes_names() {
        let svg = timeline().svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        for part in [
            "a &lt;b&gt;</text>", "SET &quot;k&quot; &amp; more</title>", "<title>k, token 41</title>",
            ">41</text>", "fill=\"url(#waits)\"", "class=\"expired\"", "class=\"fault\"", ">+3.000</text>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("<rect ").count(), 2);
        assert!(Timeline::default().svg().ends_with("</svg>"), "nothing has happened");
    }

    #[test]
    fn a_page_stands_alone() {
        let finding = Finding {
            rule: "two-holders",
            key: "k".into(),
            text: "both <hold> it".to_owned(),
            events: vec![1],
            lines: vec!["a line".to_owned()],
        };
        let page = timeline().html(&[finding]);
        assert!(page.contains("<b>two-holders</b> both &lt;hold&gt; it<pre>a line</pre>"), "{page}");
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="), "{page}");
        assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</html>\n"));
    }

    #[test]
    fn json_names_lanes_and_steps_by_their_places() {
        let json = timeline().json(&[]);
        assert!(json.contains(r#""holds":[{"lane":0,"from":1,"to":3,"token":41,"key":"k"}]"#), "{json}");
        assert!(json.contains(r#"{"at":9000,"lane":null,"text":"x has expired"}"#), "{json}");
        assert!(json.contains(r#"{"at":1000,"lane":0,"mark":"granted","text":"a holds k"}"#), "{json}");
    }
}
