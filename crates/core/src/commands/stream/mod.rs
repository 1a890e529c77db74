//! Streams that programs write and this server only keeps: XADD and XTRIM, which BullMQ's scripts send.
//!
//! Rule    a trim with `~` is exact: no whole nodes are kept as in Redis.
//!
//! Source  Redis 7.0 `t_stream.c`: `streamParseAddOrTrimArgsOrReply`, `streamGenericParseIDOrReply`, `string2ull`.

use redlatch_proto::clock::WallTime;
use redlatch_proto::error::{Refusal, until_nul};
use redlatch_proto::number;
use smallvec::SmallVec;

use crate::commands::row::{Arg, Flags, Group, Row, block, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::types::Stream;
use crate::types::stream::StreamId;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Stream, "XADD", "5.0.0", xadd)
        .summary("Adds an entry to a stream, and trims the stream if MAXLEN asks for it.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[
            key("key"),
            TRIM.maybe(),
            one_of("id-selector", &[token("auto-id", "*"), text("id")]),
            block("data", &[text("field"), text("value")]).many(),
        ]),
    Row::new(Group::Stream, "XTRIM", "5.0.0", xtrim)
        .summary("Removes the oldest entries of a stream.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), TRIM]),
];

const TRIM: Arg = block(
    "trim",
    &[
        token("maxlen", "MAXLEN"),
        one_of("operator", &[token("equal", "="), token("approximately", "~")]).maybe(),
        text("threshold"),
    ],
);

/// The id argument of XADD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NewId {
    /// `*`
    Auto,
    /// `ms-*`
    AutoSeq(u64),
    Given(StreamId),
}

impl NewId {
    fn parse(word: &[u8]) -> Result<Self, Refusal> {
        if until_nul(word) == b"*" {
            return Ok(Self::Auto);
        }
        match until_nul(word).strip_suffix(b"-*") {
            Some(ms) if word.len() <= ID_BYTES_MAX && !ms.contains(&b'-') => {
                unsigned(ms).map(Self::AutoSeq).ok_or(INVALID_ID)
            }
            _ => parse_id(word).map(Self::Given),
        }
    }

    /// The id of the new entry, which is higher than `last`.
    fn resolve(self, last: StreamId, now: WallTime) -> Result<StreamId, Refusal> {
        if last == StreamId::MAX {
            return Err(Refusal::said(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let id = match self {
            Self::Auto if now.as_millis() > last.ms => StreamId { ms: now.as_millis(), seq: 0 },
            // There is a next id, since `last` is not the highest.
            Self::Auto => last.next().unwrap_or(StreamId::MAX),
            Self::AutoSeq(ms) if ms == last.ms => {
                // Redis 7.0 answers this misleading text.
                let seq = last.seq.checked_add(1);
                let seq = seq.ok_or_else(|| Refusal::said("ERR Elements are too large to be stored"))?;
                StreamId { ms, seq }
            }
            Self::AutoSeq(ms) => StreamId { ms, seq: 0 },
            Self::Given(id) => id,
        };
        if id <= last {
            return Err(Refusal::said(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ));
        }
        Ok(id)
    }
}

/// Reads `MAXLEN [= | ~] n`, behind its first word. A trim with `~` is exact, too.
fn len_max(args: &mut Args<'_>) -> Result<u64, Refusal> {
    if args.len() > 1 && !args.take("~") {
        args.take("=");
    }
    u64::try_from(args.integer()?).map_err(|_| Refusal::said("ERR The MAXLEN argument must be >= 0."))
}

/// The refusal of a second MAXLEN.
fn trims_twice() -> Refusal {
    Refusal::said("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
}

fn xadd(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let mut trim = None;
    while call.args.len() > 1 && call.args.take("MAXLEN") {
        if trim.is_some() {
            return Err(trims_twice());
        }
        trim = Some(len_max(&mut call.args)?);
    }
    let id = call.args.maybe_word().map(NewId::parse).transpose()?;
    let words: SmallVec<[&[u8]; 16]> = call.args.rest().collect();
    let id = id.filter(|_| !words.is_empty() && words.len().is_multiple_of(2));
    let id = id.ok_or_else(|| Refusal::Arity(call.command.name.as_str().into()))?;
    if id == NewId::Given(StreamId::MIN) {
        return Err(Refusal::said("ERR The ID specified in XADD must be greater than 0-0"));
    }

    let mut stream = call.view.open::<Stream>(name)?;
    let id = id.resolve(stream.get().last_id(), call.now.wall())?;
    stream.append(id, &words);
    stream.event(b't', "xadd");
    if trim.is_some_and(|len_max| stream.trim(len_max) > 0) {
        stream.event(b't', "xtrim");
    }

    call.reply.bulk(format!("{}-{}", id.ms, id.seq).as_bytes());
    Ok(Outcome::Replied)
}

fn xtrim(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("MAXLEN") {
        return Err(Refusal::Syntax);
    }
    let len_max = len_max(&mut call.args)?;
    if call.args.len() > 1 && call.args.take("MAXLEN") {
        return Err(trims_twice());
    }
    call.args.finish()?;

    let mut removed = 0;
    if let Some(mut stream) = call.view.find::<Stream>(name)? {
        removed = stream.trim(len_max);
        if removed > 0 {
            stream.event(b't', "xtrim");
        }
    }

    call.reply.count(removed);
    Ok(Outcome::Replied)
}

/// An id; 0 if its sequence number is missing.
fn parse_id(word: &[u8]) -> Result<StreamId, Refusal> {
    if word.len() > ID_BYTES_MAX {
        return Err(INVALID_ID);
    }
    let mut parts = until_nul(word).splitn(2, |byte| *byte == b'-');
    let ms = parts.next().and_then(unsigned).ok_or(INVALID_ID)?;
    let seq = match parts.next() {
        Some(seq) => unsigned(seq).ok_or(INVALID_ID)?,
        None => 0,
    };
    Ok(StreamId { ms, seq })
}

/// A 64-bit number as Redis reads it with C's `strtoull`: leading spaces, a sign and leading zeros are accepted.
/// A negative number wraps around, unless it has the canonical form of an integer.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = number::integer(text) {
        return u64::try_from(number).ok();
    }
    number::wrapped(text.trim_ascii_start())
}

const INVALID_ID: Refusal =
    Refusal::Said(std::borrow::Cow::Borrowed("ERR Invalid stream ID specified as stream command argument"));
/// Maximum length of an id in bytes.
const ID_BYTES_MAX: usize = 127;
