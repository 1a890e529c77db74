//! The scripts of lock clients in our own spelling, each shape once, from `shapes.txt`.

/// Every script with the client that sends it.
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
