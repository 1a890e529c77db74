//! How findings are told: as text, as JSON, one in a line, as a page, and as the XML of JUnit, with a test for each case.
//! Behind the text and on the page is the test that keeps them; a line of JSON has its own.
//!
//! Rule    of the cases that show problems of one cause, the first is printed in full. The others are counted and named.

use std::collections::BTreeSet;
use std::time::Duration;

use redlatch_proto::markup::escaped;
use redlatch_testing::{Extent, HTML_END, Timeline, html_head};
use serde_json::json;

use super::attempt::Attempt;
use super::case::Case;
use super::kept::Framework;
use super::options::{ExploreOptions, Format, TIMEOUT, URL_VARIABLE};
use super::pairs::Trace;
use super::problem::{Problem, ProblemKind};
use super::program::Ending;
use crate::common::duration;

/// What came of a case.
pub(super) struct Tried {
    pub(super) took: Duration,
    /// Whether every failure has been met.
    pub(super) is_met: bool,
    /// The problems of all its runs.
    pub(super) problems: BTreeSet<ProblemKind>,
    pub(super) trace: Trace,
    pub(super) finding: Option<Finding>,
}

/// A problem that a case has brought about.
pub(super) struct Finding {
    pub(super) problem: Problem,
    pub(super) came: u32,
    /// In so many runs of the case.
    pub(super) runs: u32,
    pub(super) attempt: Attempt,
}

/// What was found so far.
pub(super) struct Report<'o> {
    options: &'o ExploreOptions,
    /// What is printed at the end: tests of JUnit, or parts of a page.
    body: String,
    tried: usize,
    /// Cases whose failures were met.
    met: usize,
    causes: Vec<Cause>,
    /// The cases for the test that keeps what was found, by their lasting names. Of pairs the first of each cause.
    kept: Vec<String>,
}

/// What findings have in common, by the ID of their problem.
struct Cause {
    id: String,
    /// The case whose finding is printed in full.
    first: String,
    /// The other cases.
    others: Vec<String>,
}

impl Cause {
    /// How the other cases are seen; empty if there are none.
    fn more(&self) -> String {
        match self.others.len() {
            0 => String::new(),
            count => {
                format!("{} comes in {count} more cases, see --case: {}\n\n", self.id, self.others.join(" "))
            }
        }
    }
}

impl<'o> Report<'o> {
    pub(super) fn new(options: &'o ExploreOptions) -> Self {
        Self { options, body: String::new(), tried: 0, met: 0, causes: Vec::new(), kept: Vec::new() }
    }

    /// How many causes were found that are not accepted.
    pub(super) fn found(&self) -> usize {
        self.causes.iter().filter(|cause| !self.options.accepts.contains(&cause.id)).count()
    }

    /// The accepted IDs that have not come.
    pub(super) fn unseen(&self) -> impl Iterator<Item = &String> {
        self.options.accepts.iter().filter(|id| self.causes.iter().all(|cause| cause.id != **id))
    }

    /// What was met and found, in numbers.
    pub(super) fn sum(&self) -> String {
        let (met, found) = (self.met, self.found());
        match self.causes.len() - found {
            0 => format!("{met} failures met, {found} findings"),
            accepted => format!("{met} failures met, {found} findings, {accepted} accepted"),
        }
    }

    /// What is printed now that a case was tried.
    pub(super) fn add(&mut self, case: &Case, tried: &Tried) -> String {
        self.tried += 1;
        self.met += usize::from(tried.is_met && !case.injections.is_empty());
        let finding = tried.finding.as_ref();
        let like = finding.and_then(|finding| self.like(case, finding));
        match (self.options.format, finding, &like) {
            (Format::Junit, ..) => self.body += &self.test(case, tried.took, finding, like.as_deref()),
            (_, None, _) => {}
            (Format::Json, Some(finding), like) => return self.json(case, finding, like.as_deref()),
            (_, _, Some(_)) => {}
            (Format::Text, Some(finding), None) if self.is_accepted(finding) => {
                return format!("{}\n\n", accepted(case, finding));
            }
            (Format::Text, Some(finding), None) => return self.text(case, finding),
            (Format::Html, Some(finding), None) if self.is_accepted(finding) => {
                self.body += &format!("<p>{}</p>\n", escaped(&accepted(case, finding)));
            }
            (Format::Html, Some(finding), None) => self.body += &self.part(case, finding),
        }
        String::new()
    }

    /// What is printed at the end.
    pub(super) fn end(&self) -> String {
        let Self { tried, body, .. } = self;
        let more: String = self.causes.iter().map(Cause::more).collect();
        match self.options.format {
            Format::Json => String::new(),
            Format::Text => {
                more + &self.kept().map_or(String::new(), |(title, test)| format!("{title}:\n\n{test}"))
            }
            Format::Junit => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                 <testsuite name=\"redlatch explore\" tests=\"{tried}\" failures=\"{}\">\n{body}</testsuite>\n",
                body.matches(FAILURE).count()
            ),
            Format::Html => {
                let (head, command) = (html_head("redlatch explore"), escaped(&self.command()));
                let sum = self.sum();
                let more =
                    if more.is_empty() { more } else { format!("<pre>{}</pre>\n", escaped(more.trim_end())) };
                let kept = self.kept().map_or(String::new(), |(title, test)| {
                    format!("<h2>{title}</h2>\n<pre>{}</pre>\n", escaped(&test))
                });
                format!("{head}<p><code>{command}</code></p>\n<p>{sum}.</p>\n{body}{more}{kept}{HTML_END}")
            }
        }
    }

    /// The test that keeps all findings, with its title; none for a single case, which such a test may have asked for.
    fn kept(&self) -> Option<(String, String)> {
        if self.kept.is_empty() || self.options.case.is_some() {
            return None;
        }
        let (framework, test) = self.test_of(&self.kept)?;
        Some((
            format!(
                "A test for {}, which fails as long as one of these failures shows a bug",
                framework.name()
            ),
            test,
        ))
    }

    /// The test that fails as long as one of these cases finds anything; none if the framework is not known.
    fn test_of(&self, cases: &[String]) -> Option<(Framework, String)> {
        let words = self.options.command.iter().map(|word| word.to_string_lossy().into_owned());
        let command: Vec<_> = words.collect();
        let framework = Framework::of(&command)?;
        Some((framework, framework.test(&self.repeated_options(), &command, cases)))
    }

    /// Notes a finding. Returns the first case of its cause, if that is another one.
    fn like(&mut self, case: &Case, finding: &Finding) -> Option<String> {
        let (id, first, counts) = (finding.problem.id(), case.to_string(), !self.is_accepted(finding));
        let known = self.causes.iter_mut().find(|cause| cause.id == id);
        if counts && (known.is_none() || case.injections.len() == 1) {
            self.kept.push(case.lasting_name());
        }
        if let Some(cause) = known {
            cause.others.push(first);
            return Some(cause.first.clone());
        }
        self.causes.push(Cause { id, first, others: Vec::new() });
        None
    }

    fn is_accepted(&self, finding: &Finding) -> bool {
        self.options.accepts.contains(&finding.problem.id())
    }

    fn test(&self, case: &Case, took: Duration, finding: Option<&Finding>, like: Option<&str>) -> String {
        let (name, class) = (escaped(&case.to_string()), escaped(&self.command()));
        let seconds = took.as_secs_f64();
        let failure = finding.map_or(String::new(), |finding| {
            if self.is_accepted(finding) {
                return format!("\n    <skipped message=\"{}\"/>\n  ", escaped(&accepted(case, finding)));
            }
            let Problem { kind, text, .. } = &finding.problem;
            let text = like.map_or(text.clone(), |like| format!("as with {like}"));
            let message = escaped(&format!("{}: {text}", kind.name()));
            let whole = escaped(&self.text(case, finding));
            format!("{FAILURE}message=\"{message}\">{whole}</failure>\n  ")
        });
        format!(
            "  <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\">{failure}</testcase>\n"
        )
    }

    /// A part of the page.
    fn part(&self, case: &Case, finding: &Finding) -> String {
        let Finding { problem, came, runs, attempt } = finding;
        let mut part = format!("<h2>{} with {}</h2>\n", problem.kind.name(), escaped(&case.to_string()));
        let (sentence, id) = (escaped(&problem.text), escaped(&problem.id()));
        part += &format!("<p>{sentence}</p>\n<p>ID: <code>{id}</code></p>\n<ul>\n");
        for (command, what) in case.told_in(&attempt.events) {
            part += &format!("<li><code>{}</code>: {what}</li>\n", escaped(&command));
        }
        let (ending, again) = (attempt.ending.text(), escaped(&self.repeat(case)));
        part +=
            &format!("</ul>\n<p>The command's end: {ending}. It came {came} of {runs} times; again:</p>\n");
        part += &format!("<pre>{again}</pre>\n{}", Timeline::of(&attempt.events).html_table());
        if attempt.ending != Ending::Passed {
            part += &format!("<p>Its output ends with</p>\n<pre>{}</pre>\n", escaped(&last_lines(attempt)));
        }
        part
    }

    fn text(&self, case: &Case, finding: &Finding) -> String {
        let Finding { problem, came, runs, attempt } = finding;
        let mut text = format!("{} with {case}: {}\n", problem.kind.name(), problem.text);
        for (command, what) in case.told_in(&attempt.events) {
            text += &format!("  the command    {command}\n  what happens   {what}\n");
        }
        text +=
            &format!("  the command's end   {}\n  ID             {}\n", attempt.ending.text(), problem.id());
        for line in &problem.lines {
            text += &format!("  {line}\n");
        }
        for line in Timeline::of(&attempt.events).text(Extent::Screen).lines() {
            text += &format!("  | {line}\n");
        }
        if attempt.ending != Ending::Passed {
            text += &format!("  its output ends with\n    {}\n", last_lines(attempt).replace('\n', "\n    "));
        }
        text + &format!("  it came {came} of {runs} times; again: {}\n\n", self.repeat(case))
    }

    fn json(&self, case: &Case, finding: &Finding, like: Option<&str>) -> String {
        let Finding { problem, came, runs, attempt } = finding;
        let injected = case.told_in(&attempt.events);
        let injected = injected.map(|(command, what)| json!({ "command": command, "what": what }));
        let test = self.test_of(&[case.lasting_name()]).map(|(_, test)| test);
        let line = json!({
            "finding": problem.kind.name(), "text": problem.text, "case": case.to_string(),
            "injected": injected.collect::<Vec<_>>(), "ending": attempt.ending.text(), "lines": problem.lines,
            "came": came, "runs": runs, "like": like, "again": self.repeat(case),
            "test": test, "id": problem.id(), "accepted": self.is_accepted(finding),
        });
        format!("{line}\n")
    }

    /// The line that repeats a case.
    fn repeat(&self, case: &Case) -> String {
        let options: String =
            self.repeated_options().iter().map(|word| format!(" {}", quoted(word))).collect();
        format!("redlatch explore{options} --case '{case}' -- {}", self.command())
    }

    /// The options without which a case would be another one.
    fn repeated_options(&self) -> Vec<String> {
        let ExploreOptions {
            servers, variables, expects, accepts, timeout, is_clock_auto, is_runner, ..
        } = self.options;
        let named = |option: &str, value: &str| [option.to_owned(), value.to_owned()];
        let variables = variables.iter().filter(|name| *name != URL_VARIABLE);
        let mut options: Vec<_> = variables.flat_map(|name| named("--env", name)).collect();
        options.extend(expects.iter().flat_map(|kind| named("--expect", kind)));
        options.extend(accepts.iter().flat_map(|id| named("--accept", id)));
        options.extend(servers.options());
        // Another time may tell another thing: what takes longer hangs.
        if duration::read(TIMEOUT).as_ref() != Ok(timeout) {
            options.extend(named("--timeout", &format!("{}ms", timeout.as_millis())));
        }
        if *is_clock_auto {
            options.extend(named("--clock", "auto"));
        }
        if *is_runner {
            options.push("--runner".to_owned());
        }
        options
    }

    /// The command as a shell reads it.
    fn command(&self) -> String {
        let words = self.options.command.iter().map(|word| quoted(&word.to_string_lossy()));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A finding that does not count.
fn accepted(case: &Case, finding: &Finding) -> String {
    let Problem { kind, text, .. } = &finding.problem;
    format!("accepted: {} with {case}: {text}; ID {}", kind.name(), finding.problem.id())
}

/// The end of what the program has printed.
fn last_lines(attempt: &Attempt) -> String {
    let lines: Vec<&str> = attempt.output.trim_end().lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..].join("\n")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// How a failure of a test begins in the XML of JUnit.
const FAILURE: &str = "\n    <failure ";
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
