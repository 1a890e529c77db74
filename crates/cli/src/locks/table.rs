//! Tables for a terminal: a header, aligned columns, and long texts cut where they do not fit the width.
//!
//! Rule    a table that no terminal shows is never cut: programs read it.

use std::io::IsTerminal;

use terminal_size::{Width, terminal_size_of};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A column, and how its texts are placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) fit: Fit,
}

/// What happens to the texts of a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fit {
    /// Long texts are cut in the middle.
    Cut,
    Left,
    Right,
}

/// The least width that a column is cut to.
const CUT_MIN: usize = 6;
/// The width of a terminal that does not know its own.
const WIDTH_DEFAULT: usize = 80;
/// Spaces between two columns.
const GAP: usize = 2;
/// What stands for the part of a text that is left out.
const MIDDLE: char = '\u{2026}';

/// The width of the terminal that the output goes to; `None` if it goes elsewhere.
pub(super) fn terminal_width() -> Option<usize> {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return None;
    }
    // A terminal that does not know its size says 0.
    let columns = terminal_size_of(&output).map_or(0, |(Width(columns), _)| usize::from(columns));
    Some(if columns > 0 { columns } else { WIDTH_DEFAULT })
}

/// The lines of a table. Each row has a text for each column. With a `width`, columns that may be cut share what the others
/// leave, and no line is longer.
pub(super) fn table<const N: usize>(
    columns: [Column; N],
    rows: &[[String; N]],
    width: Option<usize>,
) -> String {
    let mut widths = columns.map(|column| column.title.width());
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.width());
        }
    }
    if let Some(width) = width {
        shrink(&columns, &mut widths, width);
    }
    let titles = columns.map(|column| column.title.to_owned());
    let lines = std::iter::once(&titles).chain(rows).map(|row| line(&columns, &widths, row));
    lines.map(|line| cut_end(line, width.unwrap_or(usize::MAX)) + "\n").collect()
}

/// Takes from the widest column that may be cut until the table fits, or all such columns are at their least width.
fn shrink(columns: &[Column], widths: &mut [usize], width: usize) {
    loop {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let cut = widths.iter_mut().zip(columns).filter(|(_, column)| column.fit == Fit::Cut);
        match cut.map(|(width, _)| width).max() {
            Some(widest) if total > width && *widest > CUT_MIN => *widest -= 1,
            _ => return,
        }
    }
}

fn line(columns: &[Column], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for ((column, &width), text) in columns.iter().zip(widths).zip(row) {
        let text = cut(text, width);
        let space = " ".repeat(width.saturating_sub(text.width()));
        match column.fit {
            Fit::Right => line.extend([&space, &*text]),
            Fit::Cut | Fit::Left => line.extend([&*text, &space]),
        }
        line.push_str("  ");
    }
    line.trim_end_matches(' ').to_owned()
}

/// A text that takes no more than `width` columns: its beginning and its end.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let end: Vec<char> = within(text.chars().rev(), kept / 2).collect();
    let start = within(text.chars(), kept - kept / 2);
    start.chain([MIDDLE]).chain(end.into_iter().rev()).collect()
}

/// The beginning of a line that takes no more than `width` columns.
fn cut_end(line: String, width: usize) -> String {
    if line.width() <= width {
        return line;
    }
    within(line.chars(), width.saturating_sub(1)).chain([MIDDLE]).collect()
}

/// The first characters that fit into `width` columns.
fn within(characters: impl Iterator<Item = char>, mut width: usize) -> impl Iterator<Item = char> {
    characters.take_while(move |character| {
        let left = width.checked_sub(character.width().unwrap_or(0));
        width = left.unwrap_or(0);
        left.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { title: "LOCK", fit: Fit::Cut },
        Column { title: "KIND", fit: Fit::Left },
        Column { title: "TOKEN", fit: Fit::Right },
    ];

    fn rows(keys: &[&str]) -> Vec<[String; 3]> {
        keys.iter()
            .zip(1..)
            .map(|(key, token)| [(*key).to_owned(), "shared".to_owned(), token.to_string()])
            .collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_texts() {
        let text = table(COLUMNS, &rows(&["lock:stock", "a"]), None);
        assert_eq!(text, "LOCK        KIND    TOKEN\nlock:stock  shared      1\na           shared      2\n");
        assert_eq!(table(COLUMNS, &[], Some(80)), "LOCK  KIND  TOKEN\n");
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        let text = table(COLUMNS, &rows(&["\u{9396}", "ab"]), None);
        assert_eq!(text, "LOCK  KIND    TOKEN\n\u{9396}    shared      1\nab    shared      2\n");
        assert_eq!(cut("\u{9396}\u{9396}\u{9396}\u{9396}", 6), "\u{9396}\u{2026}\u{9396}");
    }

    #[test]
    fn a_long_text_is_cut_in_the_middle_to_fit_the_terminal_and_nowhere_else() {
        let keys = rows(&["lock:order:customer-0007:invoice:8812", "lock:stock"]);
        for width in [30, 40, 50] {
            let text = table(COLUMNS, &keys, Some(width));
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.iter().all(|line| line.width() == width), "{text}");
            assert!(lines[1].starts_with("lock:or") && lines[1].contains("8812  shared"), "{text}");
        }
        for width in [1, 2, 10, 20] {
            let narrow = table(COLUMNS, &keys, Some(width));
            assert!(narrow.lines().all(|line| line.width() <= width), "{narrow}");
        }
        assert!(table(COLUMNS, &keys, None).contains("customer-0007:invoice"));
    }
}
