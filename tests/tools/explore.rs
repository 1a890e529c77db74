//! `redlatch explore`: bugs that it finds, a program in which there is nothing to find, and commands that it cannot explore.
//!
//! Belongs here  what is found, exit codes, and that nothing is left. The explored commands are in [`programs`].
//! Time          no sleep: a command that hangs is ended by `--timeout`.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod programs;

use std::collections::BTreeSet;
use std::process::Output;

use crate::support::binary::{Directory, redlatch, signal};
use crate::support::waits::wait_until;

/// A pair of failures: at a command, and at its retry.
const LOST_TWICE: &str = "lost-reply@SET:1+lost-reply@SET:2";

/// Explores a command. Its backtraces, which nobody reads, would take most of the time.
fn explore(options: &[&str], command: &[&str]) -> Output {
    let mut search = redlatch();
    search.env("RUST_BACKTRACE", "0").arg("explore").args(options).arg("--").args(command);
    search.output().unwrap()
}

/// Explores one of the programs.
fn explore_test(name: &str, options: &[&str]) -> Output {
    let own = std::env::current_exe().unwrap();
    let test = format!("tools::explore::programs::{name}");
    explore(options, &[own.to_str().unwrap(), "--exact", &test, "--include-ignored", "--nocapture"])
}

/// Explores one of the programs. Returns the exit code, and each finding with its case.
fn explore_program(name: &str, options: &[&str]) -> (Option<i32>, Vec<(String, String)>) {
    let output = explore_test(name, &[&["--format", "json"], options].concat());
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("failures met"), "{name} was explored: {progress}");
    (output.status.code(), findings_of(output.stdout))
}

/// Each finding of a search, which are written as JSON, with its case.
fn findings_of(stdout: Vec<u8>) -> Vec<(String, String)> {
    let text = String::from_utf8(stdout).unwrap();
    let findings = text.lines().map(|line| {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        let word = |field: &str| finding[field].as_str().unwrap().to_owned();
        (word("finding"), word("case"))
    });
    findings.collect()
}

/// The names of the findings in one of the programs.
fn found_in(name: &str, options: &[&str]) -> BTreeSet<String> {
    let (code, findings) = explore_program(name, options);
    assert_eq!(code, Some(i32::from(!findings.is_empty())), "{name}: {findings:?}");
    findings.into_iter().map(|(finding, _)| finding).collect()
}

#[test]
fn nothing_is_found_in_a_program_that_survives_every_failure() {
    assert_eq!(found_in("right", &["--pairs"]), BTreeSet::new());
}

#[test]
fn each_planted_bug_is_found_and_nothing_else() {
    let planted = [
        ("forgets_a_lock_whose_reply_is_lost", "left"),
        ("deletes_the_lock_of_the_next_holder", "foreign-delete"),
        ("looks_at_its_lock_before_it_deletes_it", "foreign-delete"),
        ("ignores_that_its_lock_was_lost", "late"),
        ("measures_its_lease_with_the_wall_clock", "failed"),
    ];
    for (program, bug) in planted {
        assert_eq!(found_in(program, &[]), BTreeSet::from([bug.to_owned()]), "{program}");
    }
}

/// A command that cannot be told of the server starts its own: the program is the `redis-server` of its search path.
#[cfg(unix)]
#[test]
fn a_redis_server_that_the_command_starts_is_the_explored_one() {
    let directory = Directory::new();
    std::os::unix::fs::symlink(redlatch().get_program(), directory.path("redis-server")).unwrap();
    let own = std::env::current_exe().unwrap();
    let test = "tools::explore::programs::deletes_the_lock_in_a_server_of_its_own";
    let output = redlatch()
        .env("PATH", directory.path(""))
        .args(["explore", "--format", "json", "--case", "delayed@DEL:1", "--"])
        .arg(own)
        .args(["--exact", test, "--include-ignored"])
        .output()
        .unwrap();
    let progress = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{progress}");
    assert_eq!(findings_of(output.stdout), [("foreign-delete".to_owned(), "delayed@DEL:1".to_owned())]);
}

#[test]
fn a_message_that_is_missed_in_another_order_of_two_clients_is_found() {
    let program = "listens_after_it_was_refused_and_does_not_look_again";
    let (_, findings) = explore_program(program, &["--case", "overtaken@SUBSCRIBE:1", "--timeout", "5s"]);
    assert_eq!(findings, [("hung".to_owned(), "overtaken@SUBSCRIBE:1".to_owned())]);
}

#[test]
fn what_one_failure_shows_is_no_finding_of_a_pair() {
    let (code, findings) = explore_program("deletes_the_lock_of_the_next_holder", &["--pairs"]);
    assert!(code == Some(1) && !findings.is_empty(), "{findings:?}");
    assert!(findings.iter().all(|(_, case)| !case.contains('+')), "{findings:?}");
}

#[test]
fn a_bug_that_takes_two_failures_is_found_by_pairs_alone() {
    let program = "forgets_its_lock_when_its_retry_is_lost_as_well";
    let (code, findings) = explore_program(program, &["--pairs"]);
    assert_eq!(code, Some(1));
    // Without the first failure there is no second SET.
    let is_meant = |(finding, case): &(String, String)| {
        finding == "left" && case.contains("@SET:1+") && case.ends_with("@SET:2")
    };
    assert!(findings.iter().all(is_meant), "{findings:?}");
    assert!(findings.contains(&("left".to_owned(), LOST_TWICE.to_owned())), "{findings:?}");
}

#[test]
fn pairs_that_show_the_same_are_told_once() {
    let output = explore_test("forgets_its_lock_when_its_retry_is_lost_as_well", &["--pairs"]);
    let (text, progress) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(progress.contains(" failures met, 1 findings, "), "{progress}");
    assert_eq!(text.matches("; again: redlatch explore ").count(), 1, "{text}");
    let others = others_of("left/SET/orders+SET/orders", &text);
    assert!(others.len() > 3 && others.iter().all(|case| case.contains('+')), "{text}");
}

/// The cases that a report has counted behind the first one of this ID.
fn others_of<'t>(id: &str, text: &'t str) -> Vec<&'t str> {
    let (_, line) = text.split_once(&format!("\n{id} comes in ")).unwrap();
    let (count, cases) = line.lines().next().unwrap().split_once(" more cases, see --case: ").unwrap();
    let cases: Vec<_> = cases.split(' ').collect();
    assert_eq!(count.parse(), Ok(cases.len()), "{text}");
    cases
}

#[test]
fn findings_of_one_cause_are_one() {
    let program = "ignores_that_its_lock_was_lost";
    let output = explore_test(program, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(" failures met, 1 findings, "), "{text}");
    assert_eq!(text.matches("; again: redlatch explore ").count(), 1, "{text}");
    let (_, all) = explore_program(program, &[]);
    let others: Vec<_> = all[1..].iter().map(|(_, case)| &**case).collect();
    assert_eq!(others_of("late/EVAL/orders", &text), others, "a line of JSON is there for each");
}

#[test]
fn a_bug_without_any_failure_is_a_finding_with_its_key_and_its_request() {
    let alone = ["--case", "no-failure"];
    for (program, bug, request) in [
        ("works_longer_than_its_lease", "late", ": EVAL "),
        ("deletes_a_lock_that_another_client_holds", "foreign-delete", " client 2: DEL orders\n"),
        ("leaves_its_lock_to_the_end_of_the_lease", "left", " client 1: holds orders, "),
    ] {
        let (code, findings) = explore_program(program, &[]);
        assert_eq!((code, &findings[0]), (Some(1), &(bug.to_owned(), "no-failure".to_owned())), "{program}");
        assert!(findings[1..].iter().all(|(finding, _)| finding != bug), "it comes once: {findings:?}");
        let output = explore_test(program, &alone);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{bug} with no-failure: ")) && text.contains(request), "{text}");
        assert!(text.contains("; again: redlatch explore --case 'no-failure' -- "), "{text}");
    }
    assert_eq!(found_in("deletes_the_lock_of_the_next_holder", &alone), BTreeSet::new(), "it has its lock");
}

#[test]
fn an_accepted_finding_is_printed_and_does_not_count() {
    let program = "forgets_a_lock_whose_reply_is_lost";
    let output = explore_test(program, &["--accept", "left/SET/orders", "--accept", "late/DEL/orders"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("accepted: left with lost-reply@SET:1: orders is still locked "), "{text}");
    assert!(!text.contains("A test for Rust"), "{text}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains(" failures met, 0 findings, 1 accepted, "), "{progress}");
    assert!(progress.contains("redlatch: --accept late/DEL/orders: no such finding came\n"), "{progress}");

    let xml = explore_test(program, &["--format", "junit", "--accept", "left/SET/orders"]).stdout;
    let xml = String::from_utf8(xml).unwrap();
    assert!(xml.contains("failures=\"0\"") && xml.contains("<skipped message=\"accepted: left "), "{xml}");

    let wrong = explore_test(program, &["--accept", "lost/SET/orders"]);
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(64) && told.contains("'lost/SET/orders'"), "{told}");
}

#[test]
fn a_finding_of_a_pair_says_how_to_repeat_it() {
    let program = "forgets_its_lock_when_its_retry_is_lost_as_well";
    let output = explore_test(program, &["--case", LOST_TWICE]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("left with {LOST_TWICE}: orders is still locked ")), "{text}");
    assert_eq!(text.matches("  what happens   it is executed, and the reply is lost: ").count(), 2, "{text}");
    let again = format!("it came 3 of 3 times; again: redlatch explore --case '{LOST_TWICE}' -- ");
    assert_eq!(text.matches(&again).count(), 1, "{text}");
}

#[test]
fn a_pair_is_compared_with_each_of_its_failures_also_if_it_is_tried_alone() {
    let options = ["--case", "paused@SET:1+late@DEL:1"];
    assert_eq!(found_in("deletes_the_lock_of_the_next_holder", &options), BTreeSet::new());
}

#[test]
fn several_jobs_find_what_one_finds_in_the_same_order() {
    let find = |jobs| explore_program("ignores_that_its_lock_was_lost", &["--jobs", jobs]);
    let (code, findings) = find("1");
    assert!(code == Some(1) && findings.len() > 1, "{findings:?}");
    assert_eq!(find("4"), (code, findings));
}

#[test]
fn a_search_goes_on_behind_the_case_with_which_another_has_ended() {
    let program = "ignores_that_its_lock_was_lost";
    let (_, all) = explore_program(program, &[]);
    let (first, rest) = all.split_first().unwrap();
    let (code, findings) = explore_program(program, &["--after", &first.1]);
    assert_eq!((code, &findings[..]), (Some(1), rest));

    // Without time, none is tried; the search says how many there are.
    let output = explore_test(program, &["--budget", "1ms"]);
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("the budget has ended: 20 cases were not tried\n"), "{progress}");
}

#[test]
fn as_a_page_each_finding_has_its_timeline() {
    let program = "deletes_the_lock_of_the_next_holder";
    let output = explore_test(program, &["--format", "html", "--case", "paused@SET:1"]);
    assert_eq!(output.status.code(), Some(1));
    let page = String::from_utf8(output.stdout).unwrap();
    for part in [
        "<h1>redlatch explore</h1>\n",
        "<p>1 failures met, 1 findings.</p>\n",
        "<h2>foreign-delete with paused@SET:1</h2>\n",
        "<tr><th>seconds</th><th>client 1<br>",
        "of 3 times; again:</p>\n<pre>redlatch explore --case ",
    ] {
        assert!(page.contains(part), "{part:?} is in {page}");
    }
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
}

/// A runner in the shell's language: it notes its number in a file, and runs one of the programs for each line. Before it
/// answers it does `last`.
fn runner(name: &str, pids: &str, last: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let program = format!("{} --exact tools::explore::programs::{name} --include-ignored", own.display());
    format!(
        "echo $$ >> {pids}
         while read -r line; do
             url=${{line##*'\"REDIS_URL\":\"'}}; url=${{url%%'\"'*}}; passed=true
             REDIS_URL=$url REDLATCH_INJECTED= {program} >&2 || passed=false
             {last}
             echo '{{\"passed\": '$passed'}}'
         done"
    )
}

#[test]
fn a_runner_finds_what_its_command_finds() {
    let directory = Directory::new();
    let pids = directory.path("pids");
    let script = runner("deletes_the_lock_of_the_next_holder", &pids, ":");
    let output = explore(&["--runner", "--format", "json"], &["sh", "-c", &script]);
    let findings = findings_of(output.stdout);
    assert!(findings.iter().all(|(finding, _)| finding == "foreign-delete"), "{findings:?}");
    assert!(findings.iter().any(|(_, case)| case == "paused@SET:1"), "{findings:?}");
    assert_eq!(std::fs::read_to_string(&pids).unwrap().lines().count(), 1, "one process ran all");
    assert_is_gone(&pids);
}

#[test]
fn a_runner_that_hangs_or_breaks_its_form_is_replaced() {
    for (deed, finding) in [("sleep 600", "hung"), ("echo what", "failed"), ("exit 3", "failed")] {
        let directory = Directory::new();
        let pids = directory.path("pids");
        let when_late = format!("case \"$line\" in *late@SET*) {deed};; esac");
        let script = runner("ignores_that_its_lock_was_lost", &pids, &when_late);
        let options = ["--runner", "--timeout", "10s", "--case", "late@SET:1"];
        let output = explore(&options, &["sh", "-c", &script]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{finding} with late@SET:1: ")), "{deed}: {text}");
        assert!(text.contains("it came 3 of 3 times"), "{deed}: {text}");
        let again = "; again: redlatch explore --timeout 10000ms --runner --case 'late@SET:1' -- sh ";
        assert!(text.contains(again), "{deed}: {text}");
        let started = std::fs::read_to_string(&pids).unwrap();
        // The first one served the run without failures and a run with one; then each run had its own.
        assert_eq!(started.lines().count(), 3, "{deed}");
        std::fs::write(&pids, started.lines().last().unwrap()).unwrap();
        assert_is_gone(&pids);
    }
}

#[test]
fn a_command_that_hangs_after_a_failure_is_ended_and_told() {
    let options = ["--timeout", "3s", "--case", "lost-reply@SET:1"];
    assert_eq!(found_in("waits_for_its_own_lock", &options), BTreeSet::from(["hung".to_owned()]));
}

#[test]
fn a_failure_that_the_command_must_survive_is_a_finding_if_it_fails() {
    let case = ["--case", "reset@SET:1"];
    assert_eq!(found_in("right", &case), BTreeSet::new());
    let expected = [&case[..], &["--expect", "reset"]].concat();
    let (code, findings) = explore_program("right", &expected);
    assert_eq!((code, findings), (Some(1), vec![("failed".to_owned(), "reset@SET:1".to_owned())]));
}

#[test]
fn a_lock_of_several_nodes_loses_one_of_them() {
    let options = ["--nodes", "3", "--expect", "node-down", "--case", "node-down@SET:1"];
    let (code, findings) = explore_program("right", &options);
    let names: Vec<_> = findings.iter().map(|(finding, _)| finding.as_str()).collect();
    assert_eq!((code, &names[..]), (Some(1), &["failed"][..]), "the program uses one node, which is down");
}

#[test]
fn on_several_servers_a_rival_takes_most_or_none() {
    let of_stores = ["--nodes", "3"];
    assert_eq!(found_in("right_on_most_of_several_servers", &of_stores), BTreeSet::new());
    let (_, findings) = explore_program("deletes_the_next_holders_lock_on_several_servers", &of_stores);
    let found = |finding: &str, case: &str| findings.contains(&(finding.to_owned(), case.to_owned()));
    assert!(found("foreign-delete", "after-lease@SET:3"), "{findings:?}");
}

#[test]
fn a_rival_takes_locks_of_lock_commands() {
    let program = "releases_a_lock_of_lock_commands_with_del";
    let (_, findings) = explore_program(program, &["--case", "paused@LOCK.ACQUIRE:1"]);
    assert_eq!(findings, [("foreign-delete".to_owned(), "paused@LOCK.ACQUIRE:1".to_owned())]);
}

#[test]
fn in_a_cluster_nodes_fail_over_and_slots_move() {
    assert_eq!(found_in("right_in_a_cluster", &["--cluster"]), BTreeSet::new());
    let program = "deletes_the_lock_of_who_got_it_after_a_fail_over";
    let output = explore_test(program, &["--cluster", "--case", "fail-over-empty@DEL:1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("foreign-delete with fail-over-empty@DEL:1: client"), "{text}");
    assert!(text.contains("again: redlatch explore --cluster --case 'fail-over-empty@DEL:1'"), "{text}");
}

#[test]
fn a_finding_says_what_happened_and_how_to_repeat_it() {
    let output = explore_test("deletes_the_lock_of_the_next_holder", &["--case", "paused@SET:1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "foreign-delete with paused@SET:1: client 1 ends orders, which rival holds\n",
        "  the command    SET orders ",
        "  what happens   it is executed and answered, and then the client stands still until the lease has ended\n",
        "  the command's end   it passed\n",
        "X .  client 1 the lease of orders has ended, token 1",
        "of 3 times; again: redlatch explore --case 'paused@SET:1' -- ",
    ] {
        assert!(text.contains(part), "{part:?} is in {text}");
    }
}

#[test]
fn a_search_ends_with_the_test_that_keeps_what_it_has_found() {
    let program = "deletes_the_lock_of_the_next_holder";
    let title = "\nA test for Rust, which fails as long as one of these failures shows a bug:\n\n#[test]\n";
    let text = String::from_utf8(explore_test(program, &[]).stdout).unwrap();
    let (findings, test) = text.split_once(title).unwrap();
    let cases = test.lines().filter(|line| line.contains("@acquire:1\",") || line.contains("@release:1\","));
    assert_eq!(cases.count(), 1 + others_of("foreign-delete/DEL/orders", findings).len(), "{text}");
    let page = String::from_utf8(explore_test(program, &["--format", "html"]).stdout).unwrap();
    assert!(
        page.contains("<h2>A test for Rust, which ") && page.contains("&quot;paused@acquire:1&quot;"),
        "{page}"
    );

    // A single case has it in JSON alone.
    let case = ["--case", "paused@acquire:1"];
    let text = String::from_utf8(explore_test(program, &case).stdout).unwrap();
    assert!(text.starts_with("foreign-delete with paused@SET:1: ") && !text.contains(title), "{text}");
    let line = explore_test(program, &[&case[..], &["--format", "json"]].concat()).stdout;
    let finding: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert!(finding["test"].as_str().unwrap().contains("        \"paused@acquire:1\",\n"), "{finding}");
}

#[test]
fn a_lock_command_that_the_mended_program_has_replaced_is_found_by_what_it_does() {
    let case = ["--case", "delayed@release:1"];
    let found = BTreeSet::from(["foreign-delete".to_owned()]);
    assert_eq!(found_in("looks_at_its_lock_before_it_deletes_it", &case), found);
    assert_eq!(found_in("right", &case), BTreeSet::new());
}

#[test]
fn within_a_run_of_another_search_nothing_is_explored() {
    let search = redlatch().env("REDLATCH_INJECTED", "").args(["explore", "--", "false"]).output().unwrap();
    assert_eq!((search.status.code(), search.stdout.len()), (Some(0), 0));
    let told = String::from_utf8(search.stderr).unwrap();
    assert!(told.contains("another search started this run"), "{told}");
    // A runner, which learns of its runs later, is part of one as well.
    let passes =
        "[ -n \"${REDLATCH_INJECTED+set}\" ] && while read -r line; do echo '{\"passed\": true}'; done";
    let output = explore(&["--runner"], &["sh", "-c", passes]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("does not connect"), "{told}");
}

#[test]
fn as_junit_each_case_is_a_test() {
    let output = explore_test("ignores_that_its_lock_was_lost", &["--format", "junit"]);
    assert_eq!(output.status.code(), Some(1));
    let xml = String::from_utf8(output.stdout).unwrap();
    let failures = xml.matches("<failure message=\"late: ").count();
    assert!(failures > 1 && xml.contains("<failure message=\"late: client 1 releases orders "), "{xml}");
    let head = format!("<testsuite name=\"redlatch explore\" tests=\"20\" failures=\"{failures}\">\n");
    assert!(xml.contains(&head) && xml.ends_with("</testsuite>\n"), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), 20);
}

#[test]
fn what_cannot_be_explored_is_told_in_a_line() {
    let cases: [(&[&str], &[&str], &str); 7] = [
        (
            &["--runner"],
            &["sh", "-c", "echo hello; read line"],
            "redlatch: the command already fails without an injected failure; its output:\n\
             redlatch: the runner answers with \"hello\", ",
        ),
        (
            &["--runner"],
            &["true"],
            "redlatch: the command already fails without an injected failure; its output:\n\
             redlatch: the runner has ended\n",
        ),
        (&[], &["false"], "redlatch: the command already fails without an injected failure; its output:\n"),
        (&[], &["true"], "redlatch: the command does not connect to the server of REDIS_URL; see --env\n"),
        (&[], &["/no/such/program"], "redlatch: /no/such/program: No such file or directory"),
        (
            &["--timeout", "200ms"],
            &["sleep", "600"],
            "redlatch: the command already hangs without an injected failure; its output:\n",
        ),
        (&["--env", "REDLATCH_URL"], &[env!("CARGO_BIN_EXE_redlatch"), "ls"], "redlatch: the command sends "),
    ];
    for (options, command, line) in cases {
        let output = explore(options, command);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{command:?}: {told}");
        assert!(told.starts_with(line), "{command:?}: {told}");
    }
    let unknown = explore_test("takes_a_lock_of_an_unknown_kind", &[]);
    let told = String::from_utf8(unknown.stderr).unwrap();
    let line = "the command sends 2 requests, and none takes a lock that explore knows: HDEL, HSETNX\n";
    assert!(unknown.status.code() == Some(2) && told.contains(line), "{told}");
    let wrong = explore(&["--expect", "doom"], &["true"]);
    assert_eq!(wrong.status.code(), Some(64));
}

#[test]
fn a_case_that_the_command_has_not_is_named() {
    for case in ["reset@SET:7", "reset@SET:7+late@EVAL:1", "late@SET:1+reset@SET:2"] {
        let output = explore_test("right", &["--case", case]);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.ends_with(&format!("redlatch: {case} is no case of this command\n")), "{told}");
    }
}

#[test]
fn a_search_that_is_interrupted_ends_what_runs() {
    let directory = Directory::new();
    let pid = directory.path("pid");
    let own = std::env::current_exe().unwrap();
    let program = "--exact tools::explore::programs::waits_for_its_own_lock --include-ignored";
    let hangs = format!("exec {} {program}", own.display());
    // In the run without failures, and in one with a failure.
    for (options, script) in [
        (&[][..], format!("echo $$ > {pid}.new && mv {pid}.new {pid}; exec sleep 600")),
        (
            &["--case", "lost-reply@SET:1"],
            format!(
                "[ -z \"$REDLATCH_INJECTED\" ] || {{ echo $$ > {pid}.new && mv {pid}.new {pid}; }}; {hangs}"
            ),
        ),
    ] {
        let mut search = redlatch();
        let mut search =
            search.arg("explore").args(options).args(["--", "sh", "-c", &script]).spawn().unwrap();
        wait_until("the program runs", || std::path::Path::new(&pid).exists());
        signal(&search, "TERM");
        assert_eq!(search.wait().unwrap().code(), Some(143));
        assert_is_gone(&pid);
        std::fs::remove_file(&pid).unwrap();
    }
}

#[test]
fn a_command_that_shuts_its_server_down_ends_that_of_one_run() {
    let case = ["--case", "late@SET:1", "--timeout", "20s"];
    assert_eq!(found_in("shuts_its_server_down", &case), BTreeSet::new());
}

#[test]
fn what_the_command_leaves_running_ends_with_it() {
    let directory = Directory::new();
    let pid = directory.path("pid");
    let output = explore(&[], &["sh", "-c", &format!("sleep 600 & echo $! > {pid}")]);
    assert_eq!(output.status.code(), Some(2), "it takes no lock");
    assert_is_gone(&pid);
}

#[cfg(target_os = "linux")]
#[test]
fn a_daemon_that_the_command_has_started_ends_with_it() {
    let directory = Directory::new();
    let pid = directory.path("pid");
    // It has a session of its own, and is there before the command ends.
    let daemon = format!("echo $$ > {pid}.new && mv {pid}.new {pid}; exec sleep 600");
    let script = format!("setsid sh -c '{daemon}' > /dev/null 2>&1 & until [ -e {pid} ]; do :; done");
    let output = explore(&[], &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(2), "it takes no lock");
    assert_is_gone(&pid);
}

/// Between two programs a process does not tell its variables, by which a daemon is known.
#[cfg(target_os = "linux")]
#[test]
fn a_daemon_that_goes_from_program_to_program_ends_with_it() {
    for _ in 0..20 {
        let directory = Directory::new();
        let (pid, daemon) = (directory.path("pid"), directory.path("daemon"));
        let tell = format!("[ -e {pid} ] || {{ echo $$ > {pid}.new && mv {pid}.new {pid}; }}");
        std::fs::write(&daemon, format!("{tell}\nexec sh {daemon}\n")).unwrap();
        let script = format!("setsid sh {daemon} > /dev/null 2>&1 & until [ -e {pid} ]; do :; done");
        let output = explore(&[], &["sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(2), "it takes no lock");
        assert_is_gone(&pid);
    }
}

/// The process whose number is in the file ends, or is about to be collected.
fn assert_is_gone(file: &str) {
    let pid: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    let is_gone = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = state.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        matches!(state, None | Some("Z" | "X"))
    };
    // The signal that ends it has been sent.
    wait_until(&format!("process {pid} ends"), is_gone);
}
