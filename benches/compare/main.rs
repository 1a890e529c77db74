//! The race: redlatch and other servers on the same cores in one run.
//!
//! Owns    one command that builds, starts, loads and compares: `cargo bench --bench compare`; see benches/README.md.
//! Rule    the deciding figure is the server's processor time per request: other load disturbs it least.
//! Rule    run as a test, without `--bench`, it only checks that every load works.

mod generator;
mod loads;
mod machine;
mod options;
mod servers;
#[allow(dead_code, reason = "some of it is for tests alone")]
mod shared;

use std::error::Error;
use std::process::ExitCode;

use loads::Race;
use machine::Cores;
use options::Options;
use shared::results::Results;
use shared::{limit, plot, results, table, wire};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !is_meant(&arguments) {
        return ExitCode::SUCCESS;
    }
    let outcome = match arguments.as_slice() {
        [word, port] if word == "--as-limit" => serve_as_limit(port),
        _ => race(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a run of tests means this one, which has no names to list and only its own to be filtered by.
fn is_meant(arguments: &[String]) -> bool {
    let is_program = arguments.iter().any(|argument| argument == "--bench" || argument == "--as-limit");
    let is_filter = |argument: &String| !argument.starts_with('-') && !"compare".contains(argument.as_str());
    is_program || !arguments.iter().any(|argument| argument == "--list" || is_filter(argument))
}

fn serve_as_limit(port: &str) -> Result<(), Box<dyn Error>> {
    Ok(limit::serve(port.parse()?)?)
}

fn race(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut options = Options::read(arguments)?;
    machine::raise_file_limit()?;
    let mut machine = machine::description();
    machine::keep_to(Cores::Generator)?;
    if options.replicated {
        let results = loads::replicated::run(&options, machine);
        return report_clusters(&options, ("replicated", table::replicated), &results);
    }
    if options.groups {
        let results = loads::replicated::groups::run(&options, machine);
        return report_clusters(&options, ("groups", table::groups), &results);
    }
    if options.is_quick() {
        machine.push(("priority".to_owned(), priority(&mut options).to_owned()));
    }
    let (servers, missing) = servers::find(&options);
    let columns = servers.iter().map(|server| (server.row.name.to_owned(), server.about.clone()));
    let results = Results {
        scale: options.scale.name.to_owned(),
        machine,
        servers: columns.collect(),
        missing,
        ..Results::default()
    };
    let mut race = Race { options, servers, results };
    loads::run_all(&mut race);
    if race.options.again {
        race.results.keep(Results::read(&race.options.out.join("results.json"))?)?;
    }
    report(&race)
}

/// Keeps other programs away from the servers, or takes twice as many turns.
fn priority(options: &mut Options) -> &'static str {
    if machine::take_priority() {
        return "real-time";
    }
    options.scale.rounds *= 2;
    eprintln!("There is no right to a real-time priority: each server takes {} turns", options.scale.rounds);
    "normal"
}

/// Writes the results and prints a summary.
fn report(race: &Race) -> Result<(), Box<dyn Error>> {
    let Race { options, results, .. } = race;
    std::fs::create_dir_all(&options.out)?;
    results.write(&options.out.join("results.json"))?;
    let table = table::markdown(results);
    std::fs::write(options.out.join("table.md"), &table)?;
    std::fs::write(options.out.join("plot.svg"), plot::svg(results))?;
    end(options, results, &format!("{table}\nresults.json, table.md and plot.svg"))
}

/// Like [`report`], for clusters. A test must have all of its own.
fn report_clusters(
    options: &Options,
    (name, table): (&str, fn(&Results) -> String),
    results: &Results,
) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(&options.out)?;
    results.write(&options.out.join(format!("{name}.json")))?;
    let table = table(results);
    std::fs::write(options.out.join(format!("{name}.md")), &table)?;
    end(options, results, &format!("{table}\n{name}.json and {name}.md"))?;
    match results.missing.first() {
        Some((name, reason)) if options.is_test() => Err(format!("{name}: {reason}").into()),
        _ => Ok(()),
    }
}

/// Prints the summary. A test does not: it leaves nothing, has no failure, and its figures are those of a debug build.
fn end(options: &Options, results: &Results, summary: &str) -> Result<(), Box<dyn Error>> {
    if !options.is_test() {
        println!("{summary} are in {}", options.out.display());
        return Ok(());
    }
    std::fs::remove_dir_all(&options.out)?;
    match results.failed.first() {
        Some((load, server, reason)) => Err(format!("{load} on {server}: {reason}").into()),
        None => Ok(()),
    }
}
