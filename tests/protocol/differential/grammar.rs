//! Requests generated from the command table: the grammar of each row, filled, and sometimes damaged.
//!
//! Rule    requests that depend on the time of day, or need unlimited memory, are not generated: see [`tame`].

use redlatch_core::commands::Command;
use redlatch_core::commands::row::{Arg, Flags, Group, Kind};
use redlatch_testing::commands::table;

use super::words;
use crate::support::rng::Rng;

/// The words of a request.
pub(crate) type Words = Vec<Vec<u8>>;

/// A request of this command, or of one of its subcommands.
///
/// Options whose word is in `without` are not used.
pub(crate) fn request(command: &Command, sub: Option<&Command>, without: &[&str], rng: &mut Rng) -> Words {
    let mut made = Maker { group: command.row.group, words: Vec::new(), count: 1, without, rng };
    made.token(command.row.name);
    if let Some(sub) = sub {
        made.token(sub.row.name);
    }
    made.args(sub.unwrap_or(command).row.args);
    let mut words = made.words;
    // An additional word is an option to servers that know newer ones: the errors differ.
    let knows_more = matches!(command.row.name, "ZRANK" | "ZREVRANK") && without.contains(&"WITHSCORE");
    if !knows_more && rng.one_in(6) {
        damage(&mut words, rng);
    }
    if command.row.name == "ZADD" && rng.one_in(4) {
        words = vec![b"ZADD".to_vec(), ONE_SCORE.to_vec()];
        for _ in 0..1 + rng.below(3) {
            words.extend([b"0".to_vec(), words::text(rng)]);
        }
    }
    tame(&mut words, rng);
    words
}

/// A sorted set whose members all have one score: lexicographic ranges over mixed scores are undefined.
const ONE_SCORE: &[u8] = b"zl";

/// A request that makes a collection larger than the limits of Redis' compact encodings.
pub(crate) fn filler(has: impl Fn(&str) -> bool, rng: &mut Rng) -> Option<Words> {
    let (name, key, count, is_paired): (&str, &str, usize, bool) = rng.pick(&[
        ("HSET", "h0", 513, true),
        ("RPUSH", "l0", 200, false),
        ("SADD", "t0", 513, false),
        ("ZADD", "z0", 129, true),
        ("ZADD", "zl", 129, true),
    ]);
    let count = count - rng.below(3);
    let mut words = vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
    for at in 0..count {
        if is_paired {
            let value = if key == "zl" { 0 } else { at % 7 };
            words.push(value.to_string().into_bytes());
        }
        // A hash has its fields in the first place, a sorted set its members in the second.
        let at_word = words.len() - usize::from(name == "HSET");
        words.insert(at_word, at.to_string().into_bytes());
    }
    has(name).then_some(words)
}

struct Maker<'d> {
    group: Group,
    words: Words,
    /// The value of the last count argument.
    count: usize,
    without: &'d [&'d str],
    rng: &'d mut Rng,
}

impl Maker<'_> {
    fn args(&mut self, args: &[Arg]) {
        for (place, arg) in args.iter().enumerate() {
            let is_without = arg.token.is_some_and(|token| self.without.contains(&token));
            if is_without || arg.is_optional && !self.rng.one_in(3) {
                continue;
            }
            let is_counted = place > 0 && args[place - 1].name.starts_with("num");
            let times = match arg.is_multiple {
                true if is_counted => self.count,
                true => 1 + self.rng.below(3),
                false => 1,
            };
            // The word before an argument comes once, even if the argument repeats.
            if let Some(token) = arg.token {
                self.token(token);
            }
            (0..times).for_each(|_| self.arg(arg));
        }
    }

    fn arg(&mut self, arg: &Arg) {
        let word = match arg.kind {
            Kind::Token => return,
            Kind::Block(inner) => return self.args(inner),
            Kind::OneOf(choices) => {
                let choice = self.rng.below(choices.len());
                return self.args(&choices[choice..=choice]);
            }
            _ if arg.name == "cursor" => self.rng.pick(&[b"0", b"0", b"0", b"7", b"a"]).to_vec(),
            _ if arg.name == "timeout" => words::timeout(self.rng),
            Kind::Text if self.group == Group::Stream && arg.name == "id" => words::stream_id(self.rng),
            Kind::Key => words::key(self.group, self.rng),
            Kind::KeyCount => self.counted(),
            Kind::Integer if arg.name.starts_with("num") => self.counted(),
            Kind::Integer if is_lease(arg.name) => words::lease(self.rng),
            Kind::Integer => words::integer(self.rng),
            Kind::Double => words::double(self.rng),
            Kind::Channel { is_pattern: true } | Kind::Pattern => self.rng.pick(words::PATTERNS).to_vec(),
            Kind::UnixTime => {
                let is_millis = self.words[0].first() == Some(&b'P') || arg.name.contains("milli");
                words::unix_time(is_millis, self.rng)
            }
            Kind::Text if matches!(arg.name, "min" | "max" | "start" | "stop") => words::bound(self.rng),
            Kind::Channel { is_pattern: false } | Kind::Text => words::text(self.rng),
        };
        self.words.push(word);
    }

    fn counted(&mut self) -> Vec<u8> {
        self.count = 1 + self.rng.below(3);
        if self.rng.one_in(25) { words::integer(self.rng) } else { self.count.to_string().into_bytes() }
    }

    /// A literal word, in any letter case.
    fn token(&mut self, word: &str) {
        let mut word = word.as_bytes().to_vec();
        match self.rng.below(6) {
            0 => word.make_ascii_lowercase(),
            1 => {
                let at = self.rng.below(word.len());
                word[at].make_ascii_lowercase();
            }
            _ => {}
        }
        self.words.push(word);
    }
}

fn is_lease(name: &str) -> bool {
    name.contains("seconds")
}

/// Makes one mistake in a request.
fn damage(words: &mut Words, rng: &mut Rng) {
    // Not the key, whose position determines where Valkey looks for FIELDS.
    let at = 2 + rng.below(words.len());
    match rng.below(5) {
        0 if words.len() > 1 => {
            words.pop();
        }
        1 => words.push(rng.pick(JUNK).to_vec()),
        2 if at < words.len() => words[at] = rng.pick(JUNK).to_vec(),
        3 if at < words.len() => {
            let again = words[at].clone();
            words.insert(at, again);
        }
        _ if at < words.len() => {
            words.remove(at);
        }
        _ => words.push(words::text(rng)),
    }
}

const JUNK: &[&[u8]] = &[
    b"NX", b"XX", b"GT", b"LT", b"GET", b"KEEPTTL", b"COUNT", b"LIMIT", b"", b"-1", b"nan", b"k0", b"h0",
    b"WITHSCORES", b"9223372036854775808", b"FIELDS", b"REV", b"BYLEX", b"BYSCORE", b"MATCH", b"junk",
];

/// Removes parts of a request on which two servers with their own clocks and rngs cannot agree, or that fill memory.
pub(crate) fn tame(words: &mut Words, rng: &mut Rng) {
    let Some(name) = words.first().map(|name| name.to_ascii_uppercase()) else { return };
    // Whether a short lease has ended would depend on the duration of the run.
    let is_short = |word: &[u8]| number(word).is_some_and(|number| (1..100_000_000).contains(&number));
    let takes_a_lease: &[&[u8]] = &[b"EXPIRE", b"PEXPIRE", b"SETEX", b"PSETEX"];
    for at in 2..words.len() {
        let after = words[at - 1].to_ascii_uppercase();
        let is_lease =
            after == b"EX" || after == b"PX" || at == 2 && takes_a_lease.contains(&name.as_slice());
        if is_lease && is_short(&words[at]) {
            words[at] = words::long_lease(rng);
        }
        // A key set with a past deadline stays in Redis until it is read, and its removal is an event.
        let is_past = number(&words[at]).is_some_and(|number| (1..4_000_000_000_000).contains(&number));
        if (after == b"EXAT" || after == b"PXAT") && is_past {
            words[at] = b"4102444800000".to_vec();
        }
    }
    if name == b"SRANDMEMBER" {
        for word in &mut words[1..] {
            // That many draws with repetition would take too long.
            if number(word).is_some_and(|number| number < -1_000 && number != i64::MIN) {
                *word = b"-7".to_vec();
            }
        }
    }
    let is_by_lex = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"BYLEX");
    if name.windows(3).any(|part| part == b"LEX") || words.iter().any(is_by_lex) {
        let keys = words[1..].iter_mut().filter(|word| *word == b"z0" || *word == b"z1");
        keys.for_each(|word| *word = ONE_SCORE.to_vec());
    }
    if table().find(&name).is_some_and(|command| command.row.flags.has(Flags::BLOCKING)) {
        // Blocks without limit or not at all: other timeouts are for the transcripts.
        let is_first = name.ends_with(b"MPOP");
        let at = if is_first { 1 } else { words.len() - 1 };
        if let Some(timeout) = words.get_mut(at)
            && at > 0
            && !words::REFUSED_WAITS.contains(&timeout.as_slice())
        {
            *timeout = b"0".to_vec();
        }
    }
    if name == b"XADD" {
        // An id that the clock would generate.
        words.iter_mut().filter(|word| *word == b"*").for_each(|word| *word = b"8-*".to_vec());
    }
    if name == b"XADD" || name == b"XTRIM" {
        // Options of Redis that redlatch has not.
        let has_not =
            |word: &Vec<u8>| [&b"LIMIT"[..], b"MINID"].iter().any(|option| word.eq_ignore_ascii_case(option));
        words.iter_mut().filter(|word| has_not(word)).for_each(|word| *word = b"nonsense".to_vec());
    }
    if name == b"SETRANGE"
        && let Some(offset) = words.get_mut(2)
        && number(offset).is_some_and(|number| (10_000..1 << 40).contains(&number))
    {
        *offset = b"10".to_vec();
    }
}

/// Makes a draw that removes its members remove all of them; false if the request is no draw.
pub(crate) fn take_all(words: &mut Words) -> bool {
    let is_taking = words[0].eq_ignore_ascii_case(b"SPOP");
    match words.get(2).map(|word| number(word)) {
        None if is_taking && words.len() == 2 => words.push(b"1000".to_vec()),
        Some(Some(1..=999)) if is_taking => words[2] = b"1000".to_vec(),
        _ => {}
    }
    is_taking
}

fn number(word: &[u8]) -> Option<i64> {
    str::from_utf8(word).ok()?.trim().parse().ok()
}
