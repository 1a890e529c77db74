//! A timeline as a page of HTML.
//!
//! Rule    the page stands alone: no script, no font, no other file; light or dark as the reader's system is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redlatch_proto::markup::escaped;

use super::check::Finding;
use super::timeline::{LEGEND, Timeline, seconds};

/// Colours of holds, which the locks have in turn.
const COLOURS: usize = 6;

impl Timeline {
    /// As a page: what is wrong, and the [table](Self::html_table).
    pub fn html(&self, findings: &[Finding]) -> String {
        let mut out = html_head("redlatch timeline");
        if findings.is_empty() {
            out.push_str("<p>TEST.CHECK finds nothing wrong with the locks.</p>\n");
        } else {
            out.push_str("<ul class=\"findings\">\n");
            for finding in findings {
                let lines: Vec<String> = finding.lines.iter().map(|line| escaped(line)).collect();
                let (text, lines) = (escaped(&finding.text), lines.join("\n"));
                // Writing to a String cannot fail.
                _ = writeln!(out, "<li><b>{}</b> {text}<pre>{lines}</pre></li>", finding.rule.name());
            }
            out.push_str("</ul>\n");
        }
        self.put_table(&mut out);
        out + HTML_END
    }

    /// A part of a page: a table with a row for each step and a column for each lane, and what its signs say.
    pub fn html_table(&self) -> String {
        let mut out = String::new();
        self.put_table(&mut out);
        out
    }

    fn put_table(&self, out: &mut String) {
        if self.left_out > 0 {
            _ = writeln!(out, "<p>{} earlier steps are left out.</p>", self.left_out);
        }
        out.push_str("<table>\n<tr><th>seconds</th>");
        for lane in &self.lanes {
            _ = write!(out, "<th>{}<br><small>{}</small></th>", escaped(&lane.name), escaped(&lane.library));
        }
        out.push_str("<th>what happened</th></tr>\n");
        let mut colours = BTreeMap::new();
        for span in &self.holds {
            let next = colours.len() % COLOURS;
            colours.entry(&*span.key).or_insert(next);
        }
        let begin = self.steps.first().map_or(0, |step| step.at);
        for (at, step) in self.steps.iter().enumerate() {
            _ = write!(out, "<tr><td>{}</td>", seconds(begin, step.at));
            for lane in 0..self.lanes.len() {
                self.put_cell(out, lane, at, &colours);
            }
            _ = writeln!(out, "<td>{}</td></tr>", escaped(&step.text));
        }
        _ = writeln!(out, "</table>\n<p>{}</p>", LEGEND.trim());
    }

    /// A step of a lane: coloured if the lane holds a lock, hatched if it waits; with its letter, and the token of a grant.
    fn put_cell(&self, out: &mut String, lane: usize, at: usize, colours: &BTreeMap<&str, usize>) {
        let (hold, wait) = self.spans(lane, at);
        let class = match hold {
            Some(hold) => format!("hold c{}", colours[&*hold.key]),
            None => wait.map_or(String::new(), |_| "wait".to_owned()),
        };
        let title = hold.or(wait).map_or(String::new(), |span| {
            let token = span.token.map_or(String::new(), |token| format!(", token {token}"));
            escaped(&span.key) + &token
        });
        let step = &self.steps[at];
        let text = match (self.letter(lane, at), step.token.filter(|_| step.lane == Some(lane))) {
            (_, Some(token)) => token.to_string(),
            ('#' | ':' | '.', None) => String::new(),
            (letter, None) => letter.to_string(),
        };
        _ = write!(out, "<td class=\"{class}\" title=\"{title}\">{text}</td>");
    }
}

/// The beginning of a page with this title and heading. [`HTML_END`] ends it.
pub fn html_head(title: &str) -> String {
    let title = escaped(title);
    format!("{BEFORE_TITLE}{title}{STYLE}<h1>{title}</h1>\n")
}

/// The end of a page.
pub const HTML_END: &str = "</body>\n</html>\n";

const BEFORE_TITLE: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>";

const STYLE: &str = "</title>\n<style>\n\
:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:2em;background:#fff;color:#1f2937}\n\
table{border-collapse:collapse}td,th{text-align:left;padding:2px 8px;white-space:nowrap}\n\
td{font-family:ui-monospace,monospace;font-size:12px;border-left:1px solid #9ca3af55}th{vertical-align:bottom}\n\
small{font-weight:400;opacity:.7}.hold{color:#fff;font-weight:600}\n\
.wait{background:repeating-linear-gradient(45deg,#9ca3af 0 2px,#0000 2px 6px)}\n\
.c0{background:#2563eb}.c1{background:#15803d}.c2{background:#b45309}.c3{background:#7e22ce}.c4{background:#0f766e}\n\
.c5{background:#be185d}.findings b{color:#dc2626}pre{font-size:12px;overflow-x:auto}\n\
@media(prefers-color-scheme:dark){body{background:#111827;color:#e5e7eb}.findings b{color:#f87171}}\n\
</style>\n</head>\n<body>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Lane, Mark, Span, Step};

    fn timeline() -> Timeline {
        let step = |at, lane, mark, text: &str| Step { at, lane, mark, text: text.to_owned(), token: None };
        Timeline {
            lanes: ["a <b>", "c"].map(|name| Lane { name: name.to_owned(), library: String::new() }).to_vec(),
            steps: vec![
                step(1000, Some(0), Some(Mark::Request), "a SET \"k\" & more"),
                Step { token: Some(41), ..step(1000, Some(0), Some(Mark::Granted), "a holds k") },
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
    fn a_page_shows_who_holds_who_waits_and_what_happened() {
        let page = timeline().html(&[]);
        for part in [
            "<th>a &lt;b&gt;<br>",
            "<td>+3.000</td>",
            "<td>a SET &quot;k&quot; &amp; more</td></tr>",
            "<td class=\"hold c0\" title=\"k, token 41\">41</td>",
            "<td class=\"hold c0\" title=\"k, token 41\">X</td>",
            "<td class=\"wait\" title=\"k\">!</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!((page.matches("class=\"hold").count(), page.matches("class=\"wait").count()), (3, 3));
        assert!(Timeline::default().html(&[]).ends_with("</html>\n"), "nothing has happened");
    }

    #[test]
    fn a_page_stands_alone() {
        let finding = Finding {
            rule: redlatch_core::locks::Rule::TwoHolders,
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
}
