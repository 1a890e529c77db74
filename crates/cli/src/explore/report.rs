//! How findings are told: as text, as JSON, one in a line, and as the XML of JUnit, with a test for each case.

use std::collections::BTreeSet;
use std::time::Duration;

use redlatch_core::svg::escaped;
use redlatch_core::testing::{Extent, Timeline};
use serde_json::json;

use super::attempt::{Attempt, Ending};
use super::case::{Case, Injection};
use super::pairs::Trace;
use super::verdict::Problem;
use super::{Format, Options, URL_VARIABLE};

/// What came of a case.
pub(super) struct Tried {
    pub(super) took: Duration,
    /// Whether every failure has been met.
    pub(super) is_met: bool,
    /// Names of the problems of all its runs.
    pub(super) problems: BTreeSet<&'static str>,
    pub(super) trace: Trace,
    pub(super) finding: Option<Finding>,
}

/// A problem that a case has brought about.
pub(super) struct Finding {
    pub(super) problem: Problem,
    /// How often it came.
    pub(super) came: u32,
    /// In so many runs of the case.
    pub(super) runs: u32,
    pub(super) attempt: Attempt,
}

/// What was found so far.
pub(super) struct Report<'o> {
    options: &'o Options,
    /// The tests of JUnit.
    tests: String,
    tried: usize,
    /// Cases whose failures were met.
    pub(super) met: usize,
    pub(super) found: usize,
}

impl<'o> Report<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self { options, tests: String::new(), tried: 0, met: 0, found: 0 }
    }

    /// What is printed now that a case was tried.
    pub(super) fn add(&mut self, case: &Case, tried: &Tried) -> String {
        self.tried += 1;
        self.met += usize::from(tried.is_met);
        self.found += usize::from(tried.finding.is_some());
        match (self.options.format, &tried.finding) {
            (Format::Text, Some(finding)) => self.text(case, finding),
            (Format::Json, Some(finding)) => self.json(case, finding),
            (Format::Text | Format::Json, None) => String::new(),
            (Format::Junit, finding) => {
                self.add_test(case, tried.took, finding.as_ref());
                String::new()
            }
        }
    }

    /// What is printed at the end.
    pub(super) fn end(&self) -> String {
        if self.options.format != Format::Junit {
            return String::new();
        }
        let Self { tried, found, tests, .. } = self;
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuite name=\"redlatch explore\" tests=\"{tried}\" failures=\"{found}\">\n{tests}</testsuite>\n"
        )
    }

    fn add_test(&mut self, case: &Case, took: Duration, finding: Option<&Finding>) {
        let (name, class) = (escaped(&case.to_string()), escaped(&self.command()));
        let seconds = took.as_secs_f64();
        self.tests += &format!("  <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\">");
        if let Some(finding) = finding {
            let Problem { name, text, .. } = &finding.problem;
            let message = escaped(&format!("{name}: {text}"));
            let whole = escaped(&self.text(case, finding));
            self.tests += &format!("\n    <failure message=\"{message}\">{whole}</failure>\n  ");
        }
        self.tests += "</testcase>\n";
    }

    fn text(&self, case: &Case, finding: &Finding) -> String {
        let Finding { problem, came, runs, attempt } = finding;
        let mut text = format!("{} with {case}: {}\n", problem.name, problem.text);
        for Injection { kind, point } in &case.injections {
            text += &format!("  the command    {}\n", point.line);
            text += &format!("  what happens   {}\n", kind.sentence());
        }
        text += &format!("  the command's end   {}\n", ending(attempt.ending));
        for line in &problem.lines {
            text += &format!("  {line}\n");
        }
        for line in Timeline::of(&attempt.events).text(Extent::Screen).lines() {
            text += &format!("  | {line}\n");
        }
        if attempt.ending != Ending::Passed {
            let lines: Vec<&str> = attempt.output.trim_end().lines().collect();
            let end = &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..];
            text += &format!("  its output ends with\n    {}\n", end.join("\n    "));
        }
        text + &format!("  it came {came} of {runs} times; again: {}\n\n", self.repeat(case))
    }

    fn json(&self, case: &Case, finding: &Finding) -> String {
        let Finding { problem, came, runs, attempt } = finding;
        let injected = case.injections.iter();
        let injected = injected
            .map(|Injection { kind, point }| json!({ "command": point.line, "what": kind.sentence() }));
        let line = json!({
            "finding": problem.name, "text": problem.text, "case": case.to_string(),
            "injected": injected.collect::<Vec<_>>(), "ending": ending(attempt.ending), "lines": problem.lines,
            "came": came, "runs": runs, "again": self.repeat(case),
        });
        format!("{line}\n")
    }

    /// The line that repeats a case.
    fn repeat(&self, case: &Case) -> String {
        let Options { nodes, variables, expects, is_clock_auto, .. } = self.options;
        let variables =
            variables.iter().filter(|name| *name != URL_VARIABLE).map(|name| format!(" --env {name}"));
        let expects = expects.iter().map(|kind| format!(" --expect {kind}"));
        let nodes = (*nodes > 1).then(|| format!(" --nodes {nodes}"));
        let clock = is_clock_auto.then(|| " --clock auto".to_owned());
        let options: String = variables.chain(expects).chain(nodes).chain(clock).collect();
        format!("redlatch explore{options} --case '{case}' -- {}", self.command())
    }

    /// The command as a shell reads it.
    fn command(&self) -> String {
        let words = self.options.command.iter().map(|word| quoted(&word.to_string_lossy()));
        words.collect::<Vec<_>>().join(" ")
    }
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::Passed => "it passed".to_owned(),
        Ending::Failed(Some(code)) => format!("exit code {code}"),
        Ending::Failed(None) => "a signal".to_owned(),
        Ending::Hung => "it hung".to_owned(),
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Lines of the end of the output that are shown.
const OUTPUT_LINES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        for (word, shown) in
            [("pytest", "pytest"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("$X", "'$X'")]
        {
            assert_eq!(quoted(word), shown);
        }
    }
}
