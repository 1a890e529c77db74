//! What lock clients send: their scripts in our own spelling, each shape once, out of `shapes.txt` beside this file.

/// Every script, with who sends it.
pub(crate) fn shapes() -> Vec<(&'static str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    for line in include_str!("shapes.txt").lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("-- "), found.last_mut()) {
            (Some(name), _) => found.push((name, String::new())),
            (None, Some((_, script))) => {
                script.push_str(line);
                script.push('\n');
            }
            (None, None) => panic!("a script without a name: {line}"),
        }
    }
    found
}
