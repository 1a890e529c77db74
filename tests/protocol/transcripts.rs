//! Transcripts: readable sessions with a server, played to redlatch and to the servers it stands in for.
//!
//! What belongs here: replies, error texts and effects of commands that a client can see, one family a file,
//! in `tests/protocol/transcripts/*.txt`. The format is described in `tests/protocol/transcripts/README.md`.
//!
//! The tests in `against_real_servers` start the programs that `REDLATCH_REDIS_SERVER` and `REDLATCH_VALKEY_SERVER` name.
//! `TRANSCRIPT=name` plays the files whose name contains it. The examples of docs/lock-commands.md are in the same form.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use redlatch_testing::commands::table;

use crate::support::engine::EngineTarget;
#[cfg(feature = "server")]
use crate::support::nodes::Nodes;
use crate::support::pattern::{Pattern, Terms};
use crate::support::real::RealServer;
use crate::support::reply::Reply;
use crate::support::run::{Seen, play};
use crate::support::script::{Action, Transcript};
use crate::support::target::Target;

mod transcripts {
    use super::*;

    #[test]
    fn every_file_is_well_formed_and_has_no_question_left() {
        let all = load();
        assert!(!all.is_empty(), "there are transcripts");
        for transcript in all {
            for step in &transcript.steps {
                let is_open = matches!(&step.action, Action::Reply { text } if text == "?");
                assert!(!is_open, "{}:{}: what is the reply?", transcript.path.display(), step.line + 1);
            }
        }
    }

    #[test]
    fn every_command_of_the_table_is_in_one() {
        let mut asked = HashSet::new();
        for step in load_all().iter().flat_map(|transcript| &transcript.steps) {
            if let Action::Request { text, .. } = &step.action {
                let mut words = text.split_whitespace().map(str::to_lowercase);
                let (name, next) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                asked.insert(format!("{name}|{next}"));
                asked.insert(name);
            }
        }
        let missing: Vec<&str> = table().all().map(|command| command.name.as_str()).collect();
        let missing: Vec<&str> = missing.into_iter().filter(|name| !asked.contains(*name)).collect();
        assert!(missing.is_empty(), "no transcript asks for {missing:?}");
    }

    #[test]
    fn the_engine_says_the_same_over_resp2() {
        engine(2);
    }

    #[test]
    fn the_engine_says_the_same_over_resp3() {
        engine(3);
    }

    #[test]
    fn the_examples_of_the_lock_commands_are_what_the_engine_says() {
        assert!(examples_of("docs/lock-commands.md") > 15, "all commands have examples");
        assert!(examples_of("docs/allocation.md") > 3, "ANY and MODE have examples");
    }

    /// Plays the examples of a page; returns how many there are.
    fn examples_of(page: &str) -> usize {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let page = std::fs::read_to_string(&path).expect("a page of LOCK commands");
        let mut examples = 0;
        for example in page.split("\n```text\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let text = format!("covers: an example\nneeds: none\n\n{example}");
            let example = Transcript::parse(&path, &text).unwrap_or_else(|why| panic!("{why}"));
            for protocol in [2, 3] {
                let faults = play(&example, &mut EngineTarget::start(), protocol).0;
                assert!(faults.is_empty(), "RESP{protocol}:\n{}\n{text}", faults.join("\n"));
            }
            examples += 1;
        }
        examples
    }
}

mod against_real_servers {
    use super::*;

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn redis_says_the_same_over_resp2() {
        real("redis", 2);
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn redis_says_the_same_over_resp3() {
        real("redis", 3);
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn valkey_says_the_same_over_resp2() {
        real("valkey", 2);
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn valkey_says_the_same_over_resp3() {
        real("valkey", 3);
    }
}

/// The descriptions by COMMAND and ACL CAT of the commands that a real server has, too.
mod commands_against_real_servers {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    type Members = Vec<(String, BTreeSet<String>)>;
    /// COMMAND's description of each command and subcommand, by name; subcommands are separate entries.
    type Described = BTreeMap<String, Vec<Reply>>;

    /// One more word may follow: WITHSCORE came with Redis 7.2.
    const LONGER: &[&str] = &["zrank", "zrevrank"];
    /// Refused in scripts, as WAIT is in Redis 7.0; Valkey answers both there.
    const NOT_IN_SCRIPTS: &[&str] = &["waitaof"];
    const ARITY: usize = 1;
    const FLAGS: usize = 2;
    const SUBCOMMANDS: usize = 9;

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER and REDLATCH_VALKEY_SERVER"]
    fn every_command_is_described_as_the_real_servers_describe_it() {
        let own = described(&mut EngineTarget::start());
        let (mut compared, mut faults) = (BTreeSet::new(), Vec::new());
        // Redis has the word; a word that only Valkey has comes from Valkey.
        for name in ["redis", "valkey"] {
            let theirs = described(&mut RealServer::start(name));
            for (command, own) in own.iter().filter(|(command, _)| !compared.contains(*command)) {
                let Some(theirs) = theirs.get(command) else { continue };
                let mut theirs = theirs.clone();
                if LONGER.contains(&command.as_str()) {
                    theirs[ARITY] = Reply::Int(-3);
                }
                if NOT_IN_SCRIPTS.contains(&command.as_str()) {
                    theirs[FLAGS] = own[FLAGS].clone();
                }
                if *own != theirs {
                    let [own, theirs] = [own, &theirs].map(|facts| Reply::List(b'*', facts.clone()).spell());
                    faults.push(format!("{own}\n{name}: {theirs}"));
                }
            }
            compared.extend(theirs.into_keys());
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(
            own.keys().filter(|name| compared.contains(*name)).count() * 10 > own.len() * 9,
            "most are known"
        );
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER and REDLATCH_VALKEY_SERVER"]
    fn every_command_is_in_the_categories_that_the_real_servers_put_it_in() {
        let own = members(&mut EngineTarget::start());
        assert!(own.iter().filter(|(_, members)| !members.is_empty()).count() >= 18);
        let ours = all(&own);
        let mut compared = BTreeSet::new();
        for name in ["redis", "valkey"] {
            let theirs = members(&mut RealServer::start(name));
            let known: BTreeSet<_> = ours.intersection(&all(&theirs)).cloned().collect();
            let known: BTreeSet<_> = known.difference(&compared).cloned().collect();
            for ((category, own), (other, theirs)) in own.iter().zip(&theirs) {
                assert_eq!(category, other);
                let [own, theirs] = [own, theirs].map(|set| set.intersection(&known).collect::<Vec<_>>());
                assert_eq!(own, theirs, "{name}: @{category}");
            }
            compared.extend(known);
        }
        assert!(compared.len() * 10 > ours.len() * 9, "most commands are known to one of them");
    }

    fn described(target: &mut dyn Target) -> Described {
        let mut described = Described::new();
        let mut left = items(ask(target, "COMMAND"));
        while let Some(command) = left.pop() {
            let mut facts = items(command);
            left.extend(items(facts.remove(SUBCOMMANDS)));
            described.insert(text(&facts[0]), facts);
        }
        described
    }

    fn all(members: &Members) -> BTreeSet<String> {
        members.iter().flat_map(|(_, members)| members.iter().cloned()).collect()
    }

    /// The categories of a server, and the commands in each.
    fn members(target: &mut dyn Target) -> Members {
        let mut list = |request: &str| items(ask(target, request)).iter().map(text).collect::<Vec<_>>();
        let names = list("ACL CAT");
        names
            .into_iter()
            .map(|name| (name.clone(), list(&format!("ACL CAT {name}")).into_iter().collect()))
            .collect()
    }

    fn ask(target: &mut dyn Target, request: &str) -> Reply {
        let link = target.connect();
        target.ask(link, format!("{request}\r\n").as_bytes())
    }

    fn items(reply: Reply) -> Vec<Reply> {
        match reply {
            Reply::List(_, items) => items,
            other => panic!("no list: {}", other.spell()),
        }
    }

    fn text(reply: &Reply) -> String {
        match reply {
            Reply::Bulk(text) | Reply::Simple(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("no text: {}", other.spell()),
        }
    }
}

/// Transcripts with a line that differs on Windows: the C library prints two numbers of Lua in another way, and Wine ends a
/// connection that is reset as one that is closed.
const OTHERWISE_ON_WINDOWS: [&str; 4] =
    ["cluster_failover", "cluster_slot_moves", "lua_cjson", "lua_language"];

/// Plays every transcript to the engine.
fn engine(protocol: u8) {
    let mut faults = Vec::new();
    for transcript in load() {
        let can_be_played = cfg!(feature = "server") || transcript.nodes.is_none();
        let name = transcript.path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let differs = cfg!(windows) && OTHERWISE_ON_WINDOWS.contains(&name);
        if can_be_played && !differs && (protocol == 2 || transcript.over_both) {
            // A panic fails one transcript; the others still run.
            let played =
                std::panic::catch_unwind(|| play(&transcript, &mut *target(&transcript), protocol).0);
            let panicked = |_| vec![format!("{}: panicked, see above", transcript.path.display())];
            faults.extend(played.unwrap_or_else(panicked));
        }
    }
    assert!(faults.is_empty(), "the engine over RESP{protocol}:\n{}", faults.join("\n"));
}

/// The engine as a transcript needs it, or a cluster.
fn target(transcript: &Transcript) -> Box<dyn Target> {
    match (transcript.needs.as_str(), transcript.nodes) {
        #[cfg(feature = "server")]
        (_, Some(replicas)) => Box::new(Nodes::start(replicas)),
        ("tests", _) => Box::new(EngineTarget::start_with_tests()),
        _ if transcript.has_slots => Box::new(EngineTarget::start_with_slots()),
        _ => Box::new(EngineTarget::start()),
    }
}

/// Plays every transcript that names this server to it.
fn real(name: &'static str, protocol: u8) {
    let mut faults = Vec::new();
    for transcript in load() {
        if transcript.needs == name && (protocol == 2 || transcript.over_both) {
            faults.extend(play(&transcript, &mut *real_server(&transcript, name), protocol).0);
        }
    }
    assert!(faults.is_empty(), "{name} over RESP{protocol}:\n{}", faults.join("\n"));
}

/// The real server of this name, started for a transcript.
fn real_server(transcript: &Transcript, name: &'static str) -> Box<dyn Target> {
    match (transcript.nodes, transcript.has_slots) {
        #[cfg(feature = "server")]
        (Some(replicas), _) => Box::new(Nodes::start_real(name, replicas)),
        (_, true) => Box::new(RealServer::start_with_slots(name)),
        _ => Box::new(RealServer::start(name)),
    }
}

/// The transcripts that `TRANSCRIPT` selects; all by default.
fn load() -> Vec<Transcript> {
    let wanted = std::env::var("TRANSCRIPT").unwrap_or_default();
    let mut all = load_all();
    all.retain(|transcript| transcript.path.to_string_lossy().contains(&wanted));
    all
}

fn load_all() -> Vec<Transcript> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/transcripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("the transcripts are beside their runner")
        .map(|entry| entry.expect("a directory lists its entries").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths.iter().map(|path| Transcript::load(path).unwrap_or_else(|why| panic!("{why}"))).collect()
}

/// Rewrites the file with a line, or one for each protocol, in the place of each `?`.
fn answer(transcript: &Transcript, old: &Seen, new: &Seen) {
    let mut lines = Vec::new();
    for (at, line) in transcript.lines.iter().enumerate() {
        let Some(margin) = line.strip_suffix('?').filter(|margin| margin.starts_with(' ')) else {
            lines.push(line.clone());
            continue;
        };
        let mut push = |mark: &str, reply: &Reply| {
            let text = format!("{margin}{mark}{}", reply.spell_line());
            lines.push(text.replace('\n', &format!("\n{}", " ".repeat(margin.len()))));
        };
        match (old.get(&at), new.get(&at)) {
            (Some(old), Some(new)) if serves_both(new, old, new) => push("", new),
            (Some(old), Some(new)) if serves_both(old, old, new) => push("", old),
            // A client that switched back to RESP2 gets equal replies in both plays.
            (Some(old), Some(new)) if old == new => push("", old),
            (Some(old), Some(new)) => {
                push("@resp2 ", old);
                push("@resp3 ", new);
            }
            (Some(reply), None) | (None, Some(reply)) => push("", reply),
            (None, None) => lines.push(line.clone()),
        }
    }
    let text = lines.join("\n") + "\n";
    std::fs::write(&transcript.path, text).expect("the transcripts can be written");
}

/// Whether `spelling` fits both replies.
fn serves_both(spelling: &Reply, old: &Reply, new: &Reply) -> bool {
    let Ok(Some(pattern)) = Pattern::parse(&spelling.spell_line()) else { return false };
    let mut names = std::collections::HashMap::new();
    [(2, old), (3, new)].into_iter().all(|(protocol, reply)| {
        pattern.fits(reply, &mut Terms { protocol, clock_is_manual: true, names: &mut names })
    })
}

mod authoring {
    use super::*;

    /// For authors: write requests with `?` for their replies, run this, read the replies, and turn unpredictable parts
    /// into wildcards.
    #[test]
    #[ignore = "rewrites transcripts: replaces each reply line `?` by what the real server says"]
    fn questions_are_answered_by_a_real_server() {
        for transcript in load() {
            let name = match transcript.needs.as_str() {
                "redis" => "redis",
                "valkey" => "valkey",
                _ => continue,
            };
            let old = play(&transcript, &mut *real_server(&transcript, name), 2).1;
            let new = match transcript.over_both {
                true => play(&transcript, &mut *real_server(&transcript, name), 3).1,
                false => old.clone(),
            };
            answer(&transcript, &old, &new);
        }
    }
}
