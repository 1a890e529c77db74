//! Pictures in SVG that stand alone: no script, no font, no other file.
//!
//! Owns    the frame of a picture. What is drawn, and its colours, are the caller's.

use std::fmt::{Arguments, Write as _};

use redlatch_proto::markup::escaped;

/// A picture that is being drawn.
#[derive(Clone, Debug)]
pub struct Svg {
    out: String,
}

impl Svg {
    /// An empty picture, of this size in pixels. `title` is read to those who do not see it; `style` is CSS, in which
    /// `@media(prefers-color-scheme:dark)` is for dark pages.
    pub fn new(width: f64, height: f64, title: &str, style: &str) -> Self {
        let mut svg = Self { out: String::new() };
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>{style}</style>\n",
            escaped(title)
        ));
        svg
    }

    /// Adds elements as they are.
    pub fn put(&mut self, shape: Arguments<'_>) {
        self.out.write_fmt(shape).expect("a String takes everything");
    }

    /// Adds a text. `anchor` is `start`, `middle` or `end`; `class` is empty or a class of the style.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: &str, words: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let words = escaped(words);
        self.put(format_args!(
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n"
        ));
    }

    /// Adds a rectangle of a class.
    pub fn rectangle(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2]) {
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n"
        ));
    }

    /// Adds a straight line of a class.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    pub fn finish(self) -> String {
        self.out + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_title_and_its_texts_are_escaped() {
        let mut svg = Svg::new(20.0, 10.0, "a <b>", "text{fill:red}");
        svg.text("small", [1.0, 2.0], "end", "\"k\" & <more>\x1b");
        svg.line("axis", [0.0, 0.0], [1.0, 1.0]);
        let svg = svg.finish();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        for part in
            ["<title>a &lt;b&gt;</title>", "&quot;k&quot; &amp; &lt;more&gt;?</text>", "class=\"small\""]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
